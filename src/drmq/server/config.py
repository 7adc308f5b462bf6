"""The configuration of a node, and where each of its values came from.

`ServerConfig` is what the rest of the server sees. `load` makes one from four sources: flags override environment
variables, variables override the file, the file overrides defaults. Every value keeps its origin, so that an error
names the place to correct (`variable DRMQ_PORT`, `node.toml line 7`), and so that `drmq server --print-config` can show
where a surprising value was set.

An unknown key in the file is an error: the file is ours, and a typing mistake would otherwise silently run with a
default. An unknown `DRMQ_*` variable is only a warning: other programs set variables too (Kubernetes creates some for a
service named `drmq`).
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from drmq.broker.options import BrokerOptions, ClusterOptions, ListenerOptions
from drmq.model import DrmqError
from drmq.model.address import check_host, is_loopback, split_address
from drmq.model.options import InvalidOption, Range, check_ranges
from drmq.server.membership import WILDCARD_HOSTS, ClusterSettings, NodeAddress, cluster_options
from drmq.server.settings import BadValue, Setting, settings_of

VARIABLE_PREFIX = "DRMQ_"
OTHER_VARIABLES = frozenset({"DRMQ_BOOTSTRAP", "DRMQ_CONFIG"})
"""Variables of DRMQ that are not settings of a server."""


class ConfigError(DrmqError):
    """An invalid configuration. The text says which value, where it was set, why it is wrong, and what is allowed."""


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One node: its id, its addresses, its data directory, and the options of its parts."""

    node_id: Annotated[int, Range(0, 2**31 - 1)] = 1
    """Number of this node, unique in its cluster. It belongs to the data directory: do not change it later."""

    host: str = "127.0.0.1"
    """Address to listen on. `0.0.0.0` listens on every address and requires `advertise`; no encryption yet."""

    port: Annotated[int, Range(0, 65535)] = 9092
    """Port for Kafka clients; 0 picks a free one and logs it."""

    advertise: str | None = None
    """Address that clients are told to connect to, `HOST` or `HOST:PORT`. Default: where the node listens."""

    data_dir: Path = Path("drmq-data")
    """Directory for everything that the node stores; created if missing, and locked against a second process."""

    metrics_port: Annotated[int, Range(0, 65535)] | None = None
    """Port for `/metrics`, `/healthz` and `/readyz` by HTTP, on `host`; 0 picks a free one. Default: none."""

    gateway: bool = True
    """Whether the node starts a gateway, the process that serves HTTP, gRPC and the dashboard."""

    http_port: Annotated[int, Range(0, 65535)] = 8080
    """Port of the gateway for HTTP and the dashboard, on `host`; 0 picks a free one and logs it."""

    grpc_port: Annotated[int, Range(0, 65535)] = 9193
    """Port of the gateway for gRPC, on `host`; 0 picks a free one and logs it."""

    http_names: tuple[str, ...] = ()
    """Names that browsers may use for a gateway on a loopback address, beside `localhost`: those of a reverse proxy
    on the same machine. Requests with other names are refused, so that web sites cannot reach the gateway through a
    browser."""

    lab: bool = False
    """Whether the fault lab may kill, pause and cut this node: on a loopback `host`, in a cluster of `drmq up`."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe level that is logged, on standard error."""

    log_format: Literal["text", "json"] = "text"
    """Log lines as text, or one JSON object per line."""

    tracing: bool = False
    """Whether the node and its gateway export traces over OTLP, to where the variables of OpenTelemetry say
    (`OTEL_EXPORTER_OTLP_ENDPOINT`). Needs `drmq[otel]`."""

    cluster: ClusterOptions = field(default_factory=ClusterOptions)
    broker: BrokerOptions = field(default_factory=BrokerOptions)
    listener: ListenerOptions = field(default_factory=ListenerOptions)

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.lab and not is_loopback(self.host):
            raise InvalidOption(
                "lab", f"anybody who can reach {self.host!r} could kill this node; the lab needs `host` to be 127.0.0.1"
            )
        try:
            check_host(self.host)
        except ValueError as error:
            raise InvalidOption("host", str(error)) from None
        if self.advertise is None:
            if self.host in WILDCARD_HOSTS:
                raise InvalidOption(
                    "advertise",
                    f"host {self.host!r} listens on every address, so the address that clients use must be set; "
                    "set `advertise` to a name or address of this machine",
                )
            return
        try:
            host, _ = split_address(self.advertise)
        except ValueError as error:
            raise InvalidOption("advertise", str(error)) from None
        if host in WILDCARD_HOSTS:
            raise InvalidOption("advertise", f"{self.advertise!r} is not an address that a client can connect to")

    def advertised_address(self, bound_port: int) -> tuple[str, int]:
        """Host and port that are advertised to clients, given the port that was bound."""
        host, port = split_address(self.advertise or self.host)
        return host, bound_port if port is None else port


TABLES: dict[str, type] = {
    "server": ServerConfig,
    "cluster": ClusterSettings,
    "broker": BrokerOptions,
    "listener": ListenerOptions,
}
"""The tables of a configuration file, each with the class that it fills."""


def all_settings() -> dict[str, Setting]:
    """Every setting by name, in the order of the classes. Names are unique over all tables."""
    found: dict[str, Setting] = {}
    for table, cls in TABLES.items():
        for setting in settings_of(cls, table):
            assert setting.name not in found, setting.name
            found[setting.name] = setting
    return found


@dataclass(frozen=True, slots=True)
class Sourced:
    """A value and its origin, in words."""

    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration, the origin of each value by setting name, and warnings."""

    config: ServerConfig
    values: dict[str, Sourced]
    warnings: list[str]


def load(flags: Mapping[str, str], environment: Mapping[str, str], file: Path | None) -> LoadedConfig:
    """The configuration from these sources; earlier arguments override later ones. Raises `ConfigError`.

    `flags` contains only what was given on the command line, by setting name.
    """
    settings = all_settings()
    values = {name: Sourced(setting.default, "default") for name, setting in settings.items()}
    if file is not None:
        values |= _from_file(file, settings)
    found, warnings = _from_environment(environment, settings)
    values |= found
    for name, text in flags.items():
        values[name] = _parse(settings[name], text, f"flag {settings[name].flag}")
    return LoadedConfig(_build(values, settings), values, warnings)


def _parse(setting: Setting, raw: Any, origin: str) -> Sourced:
    try:
        return Sourced(setting.parse(raw), origin)
    except BadValue as error:
        raise ConfigError(f"{setting.name} = {raw!r} ({origin}): {error}. Allowed: {setting.allowed}.") from None


def _from_environment(
    environment: Mapping[str, str], settings: dict[str, Setting]
) -> tuple[dict[str, Sourced], list[str]]:
    by_variable = {setting.variable: setting for setting in settings.values()}
    found: dict[str, Sourced] = {}
    warnings = []
    for variable, text in environment.items():
        if variable in by_variable:
            setting = by_variable[variable]
            found[setting.name] = _parse(setting, text, f"variable {variable}")
        elif variable.startswith(VARIABLE_PREFIX) and variable not in OTHER_VARIABLES:
            guess = _did_you_mean(variable, by_variable)
            if guess:
                warnings.append(f"The variable {variable} is not a setting and was ignored.{guess}")
    return found, warnings


def _from_file(path: Path, settings: dict[str, Setting]) -> dict[str, Sourced]:
    try:
        text = path.read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"The configuration file {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"The configuration file {path} is not UTF-8 text: {error}.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"The configuration file {path} is not valid TOML: {error}.") from None
    found: dict[str, Sourced] = {}
    for table, entries in content.items():
        if table not in TABLES:
            raise ConfigError(_unknown_table(path, text, table, settings))
        if not isinstance(entries, dict):
            raise ConfigError(f"{path}: {table} must be a table, written [{table}] on a line of its own.")
        for key, raw in entries.items():
            where = _place(path, text, table, key)
            setting = settings.get(key.replace("-", "_"))
            if setting is None:
                in_table = [name for name, known in settings.items() if known.table == table]
                guess = _did_you_mean(key, in_table) or _did_you_mean(key, settings)
                raise ConfigError(f"There is no setting {key!r} in [{table}] ({where}).{guess}")
            if setting.table != table:
                raise ConfigError(f"The setting {setting.name!r} ({where}) belongs in [{setting.table}].")
            found[setting.name] = _parse(setting, raw, where)
    return found


def _unknown_table(path: Path, text: str, name: str, settings: dict[str, Setting]) -> str:
    where = _place(path, text, None, name)
    setting = settings.get(name.replace("-", "_"))
    if setting is not None:
        return f"The setting {name!r} ({where}) must be in the table [{setting.table}]."
    guess = _did_you_mean(name, TABLES) or _did_you_mean(name, settings)
    return f"There is no table or setting {name!r} ({where}).{guess} Tables: {', '.join(f'[{t}]' for t in TABLES)}."


def _place(path: Path, text: str, table: str | None, key: str) -> str:
    """The line of `key` in the file, or only the key if not found. tomllib reports no lines, so this searches."""
    current: str | None = None
    wanted = re.compile(rf"""\s*\[?\s*["']?{re.escape(key)}["']?\s*[=.\]]""")
    for number, line in enumerate(text.splitlines(), start=1):
        if current == table and wanted.match(line):
            return f"{path} line {number}"
        heading = re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line)
        if heading:
            current = heading.group(1).strip("\"'")
    return f"{path} key {key if table is None else f'{table}.{key}'}"


def _did_you_mean(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name.replace("-", "_"), list(known), n=1, cutoff=0.7)
    return f" Did you mean {close[0]}?" if close else ""


def _build(values: dict[str, Sourced], settings: dict[str, Setting]) -> ServerConfig:
    tables: dict[str, dict[str, Any]] = {table: {} for table in TABLES}
    for name, sourced in values.items():
        tables[settings[name].table][name] = sourced.value
    try:
        broker = BrokerOptions(**tables["broker"])
        listener = ListenerOptions(**tables["listener"])
        # First without the cluster options: these are derived from an address that has been checked.
        config = ServerConfig(**tables["server"], broker=broker, listener=listener)
        node = NodeAddress(config.node_id, config.host, config.port, config.advertise)
        return replace(config, cluster=cluster_options(ClusterSettings(**tables["cluster"]), node))
    except InvalidOption as error:
        origin = values[error.name].origin
        raise ConfigError(f"{error.name} ({origin}): {error.problem}.") from None
