"""`drmq server`: one node in the foreground, configured by flags, environment and a file.

The flags are generated from the settings (`drmq.server.settings`), so no list here can be incomplete. The few flags
that everybody uses come first; the many that limit and tune follow under headings.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from drmq.server.cli.options import output_option
from drmq.server.cli.output import Column, Output
from drmq.server.config import ConfigError, LoadedConfig, all_settings, load
from drmq.server.settings import Setting

HEADINGS = {
    "cluster": "Cluster membership",
    "broker": "Broker settings",
    "listener": "Listener limits",
}


class SettingOption(click.Option):
    """A flag generated from a setting. Its text is parsed together with all other sources, in `config.load`."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        default = f"  [default: {setting.default_text}]" if setting.default_text else ""
        # `--lab` alone means `--lab true`.
        without_value: dict[str, Any] = {"is_flag": False, "flag_value": "true"} if setting.kind == "bool" else {}
        super().__init__(
            [setting.flag, setting.name], metavar=setting.metavar, help=setting.help + default, **without_value
        )


class ServerCommand(click.Command):
    """The command with a flag for every setting, in sections."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params[:0] = [SettingOption(setting) for setting in all_settings().values()]

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(context):
            table = parameter.setting.table if isinstance(parameter, SettingOption) else "server"
            record = parameter.get_help_record(context)
            if record is not None:
                sections.setdefault(HEADINGS.get(table, "Options"), []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


@click.command(cls=ServerCommand)
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="TOML file with tables [server], [cluster], [broker] and [listener].  [DRMQ_CONFIG]",
)
@click.option("--no-gateway", is_flag=True, help="Do not start the gateway: no HTTP, no gRPC and no dashboard.")
@click.option("--print-config", is_flag=True, help="Print every value and where it was set, then exit.")
@output_option
def server(file: Path | None, no_gateway: bool, print_config: bool, output: Output, **flags: str | None) -> int:
    """Run one node in the foreground.

    Every setting is a flag (--retention-ms), a variable (DRMQ_RETENTION_MS) and a key in the file (retention_ms). Flags
    override variables, variables override the file. Sizes and times may have a unit: 64MiB, 7d. SIGTERM and Ctrl-C stop
    the node cleanly.

    A cluster of three nodes, here on one machine:

    \b
      drmq server --node-id 1 --port 9092 --data-dir ./data-1 --peers 2:localhost:9093,3:localhost:9094
      drmq server --node-id 2 --port 9093 --data-dir ./data-2 --peers 1:localhost:9092,3:localhost:9094
      drmq server --node-id 3 --port 9094 --data-dir ./data-3 --peers 1:localhost:9092,2:localhost:9093

    The cluster serves as soon as all three nodes have been up once. A node that is started later, with any of them as
    its peers, joins the cluster. `drmq up --nodes 3` does all this in one command.
    """
    if file is None and os.environ.get("DRMQ_CONFIG"):
        file = Path(os.environ["DRMQ_CONFIG"])
    given = {name: text for name, text in flags.items() if text is not None}
    if no_gateway:
        given["gateway"] = "false"
    try:
        loaded = load(given, os.environ, file)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    for warning in loaded.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if print_config:
        _print(loaded, output)
        return 0
    from drmq.server.node import run
    from drmq.telemetry import logs

    fields = {"process": "node", "node_id": loaded.config.node_id}
    repeats = logs.configure(loaded.config.log_level, loaded.config.log_format, fields=fields)
    code = run(loaded.config)
    logs.report_counts(repeats)
    return code


def _print(loaded: LoadedConfig, output: Output) -> None:
    settings = all_settings()
    rows = [
        {
            "table": settings[name].table,
            "name": name,
            "value": _plain(sourced.value),
            "origin": sourced.origin,
        }
        for name, sourced in loaded.values.items()
    ]
    columns = [Column("table", "TABLE"), Column("name", "NAME"), Column("value", "VALUE"), Column("origin", "FROM")]
    output.rows(columns, rows, "")


def _plain(value: Any) -> Any:
    """A value as plain data."""
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value
