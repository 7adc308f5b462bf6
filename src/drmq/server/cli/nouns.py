"""Groups of commands, with a suggestion for a name that does not exist.

People try the words of other tools first: `drmq topics list`, `drmq start`. The usual ones are in a table; other names
are compared by their letters.
"""

from __future__ import annotations

import difflib

import click

VERBS = {
    "list": "ls",
    "show": "describe",
    "get": "describe",
    "info": "describe",
    "inspect": "describe",
    "new": "create",
    "add": "create",
    "rm": "delete",
    "remove": "delete",
    "drop": "delete",
    "update": "alter",
    "set": "alter",
    "edit": "alter",
    "config": "alter",
    "expand": "add-partitions",
    "truncate": "trim",
    "seek": "reset",
}
NOUNS = {
    "topics": "topic",
    "dead-letters": "dlq",
    "redrive": "dlq redrive",
    "groups": "group",
    "consumer-group": "group",
    "consumer-groups": "group",
    "nodes": "cluster members",
    "broker": "cluster members",
    "brokers": "cluster members",
    "members": "cluster members",
    "info": "cluster info",
    "health": "cluster health",
    "rebalance": "cluster rebalance",
    "list": "topic ls",
    "ls": "topic ls",
    "create": "topic create",
    "describe": "topic describe",
    "alter": "topic alter",
    "delete": "topic delete",
    "lag": "group lag",
    "reset": "group reset",
    "start": "up",
    "run": "server",
    "serve": "server",
    "gateway": "proxy",
    "http": "proxy",
    "htop": "top",
    "monitor": "top",
    "watch": "top",
    "ui": "dashboard",
    "console": "dashboard",
    "open": "dashboard",
    "stop": "down",
    "send": "produce",
    "publish": "produce",
    "write": "produce",
    "read": "consume",
    "receive": "consume",
    "subscribe": "consume",
    "cat": "consume",
    "tail": "consume",
    "config": "server --print-config",
    "dump": "log dump",
    "verify": "log verify",
    "query": "sql",
    "metrics": "debug counters",
    "counters": "debug counters",
}


class Noun(click.Group):
    """A group that suggests what an unknown command may have meant."""

    synonyms = VERBS

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = arguments[0]
        is_known = self.get_command(context, name) is not None
        if not is_known and not name.startswith("-") and not context.resilient_parsing:
            raise click.UsageError(f"No such command {name!r}.{self._guess(context, name)}", context)
        return super().resolve_command(context, arguments)

    def _guess(self, context: click.Context, name: str) -> str:
        if name.lower() == "help":
            # Not `shell`, `heal` or `health`: the next line of the error says how to get help.
            return ""
        known = self.list_commands(context)
        meant = self.synonyms.get(name.lower(), "")
        if meant.partition(" ")[0] not in known:
            meant = next(iter(difflib.get_close_matches(name.lower(), known, n=1)), "")
        return f" Did you mean `{context.command_path} {meant}`?" if meant else ""
