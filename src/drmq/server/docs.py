"""The reference pages, as far as they can be made from definitions.

`python -m drmq.server.docs` rewrites what stands between the marks in `docs/reference/configuration.md`,
`docs/reference/command-line.md` and `docs/reference/spark-options.md`; the prose around is written by
hand. A test compares, so a setting, a command or an option that is not in the manual does not pass.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from drmq.server.cli import COMMANDS, drmq
from drmq.server.config import TABLES, all_settings
from drmq.server.settings import Setting
from drmq.spark.definitions import DEFINITIONS, Use

START = "<!-- made by python -m drmq.server.docs: {name} -->"
END = "<!-- end of {name} -->"
HELP_WIDTH = 100
SETTINGS_HEADING = "Broker settings"
"""Where the help of `drmq server` comes to the settings that the page about configuration lists."""


def configuration() -> str:
    """Every setting, in a table for each table of the file."""
    settings = all_settings()
    parts = []
    for table in TABLES:
        parts.append(f"### [{table}]\n")
        parts.append("| Setting | Default | Allowed | Meaning |")
        parts.append("| --- | --- | --- | --- |")
        parts += [_row(setting) for setting in settings.values() if setting.table == table]
        parts.append("")
    return "\n".join(parts)


def _row(setting: Setting) -> str:
    default = f"`{setting.default_text}`" if setting.default_text else "none"
    allowed = setting.allowed.partition(";")[0].replace("|", "\\|")
    return f"| `{setting.name}` | {default} | {allowed} | {setting.help} |"


def command_line() -> str:
    """The help text of every command."""
    parts = []
    for path, command in all_commands():
        name = " ".join(("drmq", *path))
        context = click.Context(command, info_name=name, max_content_width=HELP_WIDTH, terminal_width=HELP_WIDTH)
        context.help_option_names = ["-h", "--help"]
        text, rest, _ = command.get_help(context).partition(f"\n{SETTINGS_HEADING}:")
        parts.append(f"{'#' * (2 + len(path))} {name}\n\n```text\n{text.rstrip()}\n```\n")
        if rest:
            parts.append("All other settings are flags too: see [configuration](configuration.md).\n")
    return "\n".join(parts)


def all_commands() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with the words that call it, groups before what is in them."""
    root = click.Context(drmq)
    for name in COMMANDS:
        command = drmq.get_command(root, name)
        assert command is not None, name
        yield (name,), command
        if isinstance(command, click.Group):
            for verb in sorted(command.commands):
                yield (name, verb), command.commands[verb]


def spark_options() -> str:
    """Every option of the Spark data source, in a table for each use."""
    tables = (
        ("Reading and writing", lambda use: bool(use & Use.READ) and bool(use & Use.WRITE)),
        ("Reading", lambda use: use == Use.READ),
        ("Batches only", lambda use: use == Use.BATCH),
        ("Streams only", lambda use: use == Use.STREAM),
        ("Writing", lambda use: use == Use.WRITE),
    )
    parts = []
    for title, belongs in tables:
        parts.append(f"### {title}\n")
        parts.append("| Option | Default | Allowed | Meaning |")
        parts.append("| --- | --- | --- | --- |")
        parts += [
            f"| `{option.name}` | {option.default} | {option.allowed} | {option.doc} |"
            for option in DEFINITIONS.values()
            if belongs(option.use) and not option.accepted
        ]
        parts.append("")
    return "\n".join(parts)


PAGES: dict[str, tuple[str, Callable[[], str]]] = {
    "configuration.md": ("settings", configuration),
    "command-line.md": ("commands", command_line),
    "spark-options.md": ("options", spark_options),
}
"""Each page: the name of its made section, and what makes it."""


def updated(page: str, text: str) -> str:
    """The page with its made section as it should be now."""
    name, make = PAGES[page]
    start, end = START.format(name=name), END.format(name=name)
    before, found, rest = text.partition(start)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise ValueError(f"{page} has no section between {start!r} and {end!r}")
    return f"{before}{start}\n\n{make()}\n{end}{after}"


def main(folder: Path) -> int:
    """Rewrite the pages in a folder."""
    for page in PAGES:
        path = folder / page
        path.write_text(updated(page, path.read_text()))
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/reference")))
