"""`drmq shell`: a prompt for sending messages and working on them by hand; what it does is in `drmq.server.shell`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from drmq.server.cli.completion import group_names, topic_names
from drmq.server.cli.endings import Ending
from drmq.server.cli.hints import with_bootstrap
from drmq.server.cli.options import ClusterChoice, bootstrap_option, check_names

if TYPE_CHECKING:
    from drmq.server.shell.replies import Reply


@click.command()
@click.option("-g", "--group", shell_complete=group_names, callback=check_names, help="Begin with this group.")
@click.option(
    "-t",
    "--topic",
    shell_complete=topic_names,
    callback=check_names,
    help="Begin with a subscription to this topic.",
)
@click.option(
    "--mode",
    type=click.Choice(["group", "single"]),
    default="group",
    show_default=True,
    help="Share messages with a group by leases, or read alone by position.",
)
@click.option("--keep-going", is_flag=True, help="In a pipe: continue after a command that failed.")
@click.option(
    "-o",
    "form",
    type=click.Choice(["text", "json", "jsonl"]),
    default="text",
    show_default=True,
    help="Output format; json and jsonl print one object per line.",
)
@bootstrap_option
def shell(group: str | None, topic: str | None, mode: str, keep_going: bool, form: str, cluster: ClusterChoice) -> int:
    """Send messages, and work on them by hand.

    At a terminal, there is a prompt: `help` lists the commands, Tab completes them and the names of topics and groups,
    and the arrow keys find earlier lines. In a pipe, each line is a command, and the first that fails ends the shell
    with exit code 1.

    In group mode (the default), messages are leased: `poll` shows and holds them, `ack`, `nack` and `reject` settle
    them, and leaving gives back the rest. Shells and workers of one group share its messages. In single mode, the shell
    reads from any position.

    \b
      drmq shell -g billing -t orders
      echo 'send orders hello' | drmq shell
    """
    from drmq.server.shell.commands import Subscribe
    from drmq.server.shell.session import Session

    def show(reply: Reply) -> None:
        if form == "text":
            print(with_bootstrap(reply.text))
        else:
            for facts in reply.facts if isinstance(reply.facts, list) else [reply.facts]:
                print(json.dumps(facts, ensure_ascii=False))

    with Ending() as ending, Session(cluster, group=group, mode=mode) as session:
        if topic is not None:
            for reply in session.execute(Subscribe(topic)):
                show(reply)
        if sys.stdin.isatty() and sys.stdout.isatty():
            from drmq.server.shell.completion import Names
            from drmq.server.shell.terminal import run_terminal

            names = Names(lambda timeout_s: ClusterChoice(cluster.bootstrap, timeout_s).admin())
            run_terminal(session, names, show, ending)
            return 0
        from drmq.server.shell.script import run_script

        return 0 if run_script(session, sys.stdin.buffer, show, keep_going=keep_going) else 1
