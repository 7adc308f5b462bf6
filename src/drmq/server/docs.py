"""Generates the parts of the reference pages that follow from definitions in the code.

`python -m drmq.server.docs` rewrites the section between the markers in `docs/reference/configuration.md`,
`docs/reference/command-line.md`, `docs/reference/counters.md`, `docs/reference/metrics.md`,
`docs/reference/group-settings.md`, `docs/reference/grpc.md`, `docs/reference/http-api.md` and
`docs/reference/spark-options.md`; the text around it is written by hand. A test compares the pages with the code, so a
setting, command, counter, method or option that is missing from the manual fails the build.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click

from drmq.catalog import BROKER_DEFINITIONS, CLUSTER_WIDE, GROUP_DEFINITIONS, ConfigDefinition
from drmq.model.counters import COUNTERS, GATEWAY_COUNTERS
from drmq.model.metrics_text import exported_help, exported_name
from drmq.server.cli import COMMANDS, drmq
from drmq.server.config import TABLES, all_settings
from drmq.server.settings import Setting
from drmq.spark.definitions import DEFINITIONS, Use

START = "<!-- made by python -m drmq.server.docs: {name} -->"
END = "<!-- end of {name} -->"
HELP_WIDTH = 100
PROTO = Path(__file__).resolve().parents[3] / "proto"
"""The services of gRPC: in a clone, not in a package."""
SETTINGS_HEADING = "Broker settings"
"""The heading in the help of `drmq server` from which on the options are listed on the configuration page instead."""


def configuration() -> str:
    """All settings, as one Markdown table for each table of the configuration file."""
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
    """Every command with the words that invoke it; a group comes before its commands."""
    root = click.Context(drmq)
    for name in COMMANDS:
        command = drmq.get_command(root, name)
        assert command is not None, name
        yield (name,), command
        if isinstance(command, click.Group):
            for verb in sorted(command.commands):
                yield (name, verb), command.commands[verb]


def spark_options() -> str:
    """All options of the Spark data source, as one Markdown table for each kind of use."""
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


def counters() -> str:
    """All counters of a node, as one Markdown table."""
    parts = ["| Counter | In `/metrics` | Kind | Labels | Meaning |", "| --- | --- | --- | --- | --- |"]
    for name, row in COUNTERS.items():
        labels = ", ".join(f"`{label}`" for label in row.labels)
        exported = "same" if exported_name(name) == name else f"`{exported_name(name)}`"
        parts.append(f"| `{name}` | {exported} | {row.kind.name.lower()} | {labels} | {row.text} |")
    return "\n".join([*parts, ""])


def metrics() -> str:
    """All series of `/metrics`, of a node and of a gateway, as Markdown tables."""
    parts = []
    for title, rows in (("A node", COUNTERS), ("A gateway", GATEWAY_COUNTERS)):
        parts += [f"### {title}\n", "| Name | Type | Unit | Labels | Meaning |", "| --- | --- | --- | --- | --- |"]
        for name, row in rows.items():
            exported = exported_name(name)
            labels = ", ".join(f"`{label}`" for label in row.labels)
            text = exported_help(name).replace("|", "\\|")
            parts.append(f"| `{exported}` | {row.kind.name.lower()} | {_unit(exported)} | {labels} | {text} |")
        parts.append("")
    return "\n".join(parts)


def _unit(exported: str) -> str:
    base = exported.removesuffix("_total")
    return next((unit for unit in ("seconds", "bytes", "records") if base.endswith(f"_{unit}")), "count")


def group_settings() -> str:
    """The settings of lease groups, and those of the whole cluster that are about lease groups."""
    parts = _definitions(GROUP_DEFINITIONS.values())
    parts += ["", "These are settings of all brokers (a resource of the type BROKER with an empty name):", ""]
    return "\n".join([*parts, *_definitions(BROKER_DEFINITIONS[name] for name in CLUSTER_WIDE), ""])


def _definitions(definitions: Iterable[ConfigDefinition]) -> list[str]:
    rows = [
        f"| `{each.name}` | {each.type.name.lower()} | `{each.default}` | {each.allowed} | {each.doc} |"
        for each in definitions
    ]
    return ["| Setting | Type | Default | Allowed | Meaning |", "| --- | --- | --- | --- | --- |", *rows]


def http_api() -> str:
    """All operations of the HTTP API, with their parameters and bodies."""
    from msgspec.structs import fields

    from drmq.gateway.endpoint import PREFIX
    from drmq.gateway.routes import ENDPOINTS

    parts = ["| Operation | What it does | Parameters | Body |", "| --- | --- | --- | --- |"]
    for each in sorted(ENDPOINTS, key=lambda each: (each.path, each.method)):
        names = [] if each.params is None else [field.encode_name for field in fields(each.params)]
        query = ", ".join(f"`{name}`" for name in names if name not in each.path_names)
        body = "" if each.body is None else f"`{each.body.__name__}`"
        parts.append(f"| `{each.method} {PREFIX}{each.path}` | {each.summary} | {query} | {body} |")
    return "\n".join([*parts, ""])


_SERVICE = re.compile(r"^service (\w+) \{$(.*?)^\}$", re.MULTILINE | re.DOTALL)
_METHOD = re.compile(
    r"(?P<comment>(?:^  //[^\n]*\n)+)"
    r"^  rpc (?P<name>\w+)\((?P<up>stream )?(?P<request>\w+)\) returns \((?P<down>stream )?(?P<response>\w+)\);$",
    re.MULTILINE,
)
_FLOWS = {(False, False): "one", (False, True): "responses", (True, True): "both"}


def grpc_methods() -> str:
    """All methods of the gRPC services, with the first paragraph of their comments."""
    parts = [
        "`Stream` says what is a stream: nothing (`one` request, one response), the `responses`, or `both`.",
        "",
        "| Method | What it does | Stream |",
        "| --- | --- | --- |",
    ]
    for path in sorted(PROTO.rglob("*.proto")):
        for service, body in _SERVICE.findall(path.read_text()):
            for found in _METHOD.finditer(body):
                lines = [line.strip().removeprefix("//").strip() for line in found["comment"].splitlines()]
                text = " ".join(lines[: lines.index("")] if "" in lines else lines)
                flow = _FLOWS[found["up"] is not None, found["down"] is not None]
                parts.append(f"| `drmq.v1.{service}/{found['name']}` | {text} | {flow} |")
    return "\n".join([*parts, ""])


PAGES: dict[str, tuple[str, Callable[[], str]]] = {
    "configuration.md": ("settings", configuration),
    "command-line.md": ("commands", command_line),
    "counters.md": ("counters", counters),
    "grpc.md": ("methods", grpc_methods),
    "metrics.md": ("metrics", metrics),
    "http-api.md": ("operations", http_api),
    "group-settings.md": ("group settings", group_settings),
    "spark-options.md": ("options", spark_options),
}
"""For each page: the name of its generated section, and the function that generates it."""


def updated(page: str, text: str) -> str:
    """The page with its generated section replaced by the current one."""
    name, make = PAGES[page]
    start, end = START.format(name=name), END.format(name=name)
    before, found, rest = text.partition(start)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise ValueError(f"{page} has no section between {start!r} and {end!r}")
    return f"{before}{start}\n\n{make()}\n{end}{after}"


def main(folder: Path) -> int:
    """Rewrite the pages in `folder`."""
    for page in PAGES:
        path = folder / page
        path.write_text(updated(page, path.read_text()))
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/reference")))
