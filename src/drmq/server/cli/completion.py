"""`drmq completion`, and the names of topics and groups that the shell completes.

The shell runs `drmq` for each completion, with the line typed so far in variables (click does this). Names come from
the cluster that the line or `DRMQ_BOOTSTRAP` names. Without an answer within a moment there are no names: a completion
must never print an error into the line that a user types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from drmq.client import Admin

SHELLS = ("bash", "zsh", "fish")
_TIMEOUT_S = 1.0


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a script that makes a shell complete commands, options, topics and groups.

    \b
      eval "$(drmq completion bash)"               in ~/.bashrc
      eval "$(drmq completion zsh)"                in ~/.zshrc
      drmq completion fish | source                in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, shell
    root = click.get_current_context().find_root().command
    click.echo(kind(root, {}, "drmq", "_DRMQ_COMPLETE").source())


def topic_names(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The topics that begin with what was typed. Internal ones only if their first underscore was typed."""

    def names(admin: Admin) -> Iterable[str]:
        return (topic.name for topic in admin.topics.all() if incomplete.startswith("_") or not topic.is_internal)

    return _matching(context, incomplete, names)


def group_names(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The groups that begin with what was typed."""
    return _matching(context, incomplete, lambda admin: (group.group_id for group in admin.groups.all()))


def _matching(context: click.Context, incomplete: str, names: Callable[[Admin], Iterable[str]]) -> list[str]:
    from drmq.model import DrmqError
    from drmq.server.cli.options import ClusterChoice, chosen_bootstrap

    typed = context.params.get("cluster")
    try:
        bootstrap = typed.bootstrap if isinstance(typed, ClusterChoice) else chosen_bootstrap(context, None)[0]
        with ClusterChoice(bootstrap, _TIMEOUT_S).admin() as admin:
            return sorted(name for name in names(admin) if name.startswith(incomplete))
    except (DrmqError, OSError, click.ClickException):
        return []
