"""Define the settings and read them: default, then ``intercom.toml``, then the environment, then flags."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

from msgspec import Struct, ValidationError, convert
from msgspec.structs import replace

from intercom.errors import ConfigError
from intercom.limits import (
    ASK_MS,
    ASK_RANGE_MS,
    CLUSTER_NAME_CHARACTERS,
    CLUSTER_REPLICAS,
    FLOW_ADMISSIONS,
    FLOW_ADMISSIONS_RANGE,
    FLOW_END_GRACE_MS,
    FLOW_END_GRACE_RANGE_MS,
    FLOW_RECONCILE_MS,
    FLOW_RECONCILE_RANGE_MS,
    FLOW_TODO_GATE_MS,
    FLOW_TODO_GATE_RANGE_MS,
    FRAME_BYTES,
    FRAME_CEILING_BYTES,
    IDLE_MS,
    IDLE_RANGE_MS,
    INBOX_ENTRIES,
    INBOX_ENTRIES_RANGE,
    RECEIPT_WAIT_MS,
    RECEIPT_WAIT_RANGE_MS,
    SPAWN_KINDS,
    UNREGISTERED_FRAME_BYTES,
    WHOLE_NUMBER_MAX,
    Limits,
)
from intercom.paths import Paths, read_ordinary_file

Durability: TypeAlias = Literal["full", "memory"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

_VARIABLE_PREFIX = "INTERCOM_"
SPAWN = "spawn"
"""Table of ``intercom.toml`` with the sessions that may be started."""
CLUSTER = "cluster"
"""Table of ``intercom.toml`` that says how brokers on other machines are reached."""


class About(NamedTuple):
    """Say what a setting means and which values it takes."""

    meaning: str
    unit: str = ""
    low: int = 0
    high: int = 0
    choices: tuple[str, ...] = ()


class SpawnKind(Struct, frozen=True, forbid_unknown_fields=True):
    """Describe one kind of session that may be started: the command, and the directory it works in."""

    command: tuple[str, ...]
    cwd: str = "~"


class ClusterSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Say how brokers on other machines are reached; without ``url`` none is."""

    url: tuple[str, ...] = ()
    """Servers of the engine."""
    credentials: str = ""
    """File with the credentials of an account of the engine."""
    token_file: str = ""
    """File with a token in their place."""
    tls_ca: str = ""
    """File with the certificates that servers are checked against; empty: those of the system."""
    name: str = "intercom"
    """Prefix of everything that the brokers keep in the engine."""
    key_file: str = ""
    """File with the key that the brokers share."""
    replicas: int = 0
    """On how many servers a copy is held; 0: on three if there are so many, else on one."""
    node: str = ""
    """What this machine is called; empty: its host name."""


class Settings(Struct, frozen=True, kw_only=True):
    """Hold every setting; this class is the table the loader, the checks and the documentation are built from."""

    frame_bytes: Annotated[
        int,
        About("Largest frame a session may send.", "bytes", UNREGISTERED_FRAME_BYTES, FRAME_CEILING_BYTES),
    ] = FRAME_BYTES
    idle_ms: Annotated[
        int,
        About(
            "A broker without a session leaves this long after the last activity; a new one stays a second at least.",
            "ms",
            *IDLE_RANGE_MS,
        ),
    ] = IDLE_MS
    receipt_wait_ms: Annotated[
        int,
        About("How long a sender waits for its recipient's receipt.", "ms", *RECEIPT_WAIT_RANGE_MS),
    ] = RECEIPT_WAIT_MS
    ask_ms: Annotated[
        int,
        About("How long a question stays open.", "ms", *ASK_RANGE_MS),
    ] = ASK_MS
    flow_reconcile_ms: Annotated[
        int,
        About("Pause between two looks at the flows that have something to do.", "ms", *FLOW_RECONCILE_RANGE_MS),
    ] = FLOW_RECONCILE_MS
    flow_todo_gate_ms: Annotated[
        int,
        About(
            "How long the report of a completed step waits for what its to-do gates ask for.",
            "ms",
            *FLOW_TODO_GATE_RANGE_MS,
        ),
    ] = FLOW_TODO_GATE_MS
    flow_end_grace_ms: Annotated[
        int,
        About(
            "How long a report may still come after other signs said that the work of a step has ended.",
            "ms",
            *FLOW_END_GRACE_RANGE_MS,
        ),
    ] = FLOW_END_GRACE_MS
    flow_admissions: Annotated[
        int,
        About(
            "Vain attempts in a row to reach its target after which a flow fails; one a pause is counted.",
            "attempts",
            *FLOW_ADMISSIONS_RANGE,
        ),
    ] = FLOW_ADMISSIONS
    inbox_entries: Annotated[
        int,
        About("How many messages may be parked until somebody takes them.", "messages", *INBOX_ENTRIES_RANGE),
    ] = INBOX_ENTRIES
    durability: Annotated[
        Durability,
        About(
            "Where the fate of plain messages is kept: full, on disk before an answer is given; memory, forgotten "
            "when the broker ends.",
            choices=("full", "memory"),
        ),
    ] = "full"
    watchdog: Annotated[
        bool,
        About("Whether a broker whose event loop stands still ends itself."),
    ] = True
    log_level: Annotated[
        LogLevel,
        About("Least important line that is written to the log.", choices=("debug", "info", "warning", "error")),
    ] = "info"
    loop_guard: Annotated[
        bool,
        About("Whether the broker refuses messages that cause each other again and again."),
    ] = True
    notify_command: Annotated[
        str,
        About(
            "Command that `intercom me --follow` runs for what waits for the person; what is said goes to its standard "
            "input. Empty: none.",
        ),
    ] = ""
    spawn: dict[str, SpawnKind] = {}
    """Kinds of sessions that may be started, by name; only the file names any."""
    cluster: ClusterSettings = ClusterSettings()
    """How other machines are reached; only the file says that."""

    def limits(self) -> Limits:
        """Return the limits of the core with these settings applied."""
        limits = Limits(
            receipt_wait_ms=self.receipt_wait_ms,
            ask_ms=self.ask_ms,
            inbox_entries=self.inbox_entries,
            flow_reconcile_ms=self.flow_reconcile_ms,
            flow_todo_gate_ms=self.flow_todo_gate_ms,
            flow_end_grace_ms=self.flow_end_grace_ms,
            flow_admissions=self.flow_admissions,
        )
        return limits if self.loop_guard else replace(limits, loop_free_hops=WHOLE_NUMBER_MAX)


class Setting(Struct, frozen=True):
    """Describe one setting completely, for checks and for the documentation page."""

    name: str
    variable: str
    default: int | bool | str
    about: About

    @property
    def accepts(self) -> str:
        """Say in words which values are accepted."""
        if self.about.choices:
            return "one of " + ", ".join(f'"{choice}"' for choice in self.about.choices)
        if isinstance(self.default, bool):
            return "true or false"
        if isinstance(self.default, str):
            return "a text"
        return f"a whole number of {self.about.unit} from {self.about.low} to {self.about.high}"

    def takes(self, value: object) -> bool:
        """Tell whether ``value`` has the right type and is in range."""
        if self.about.choices:
            return value in self.about.choices
        if isinstance(self.default, bool):
            return isinstance(value, bool)
        if isinstance(self.default, str):
            return isinstance(value, str)
        return isinstance(value, int) and not isinstance(value, bool) and self.about.low <= value <= self.about.high

    def from_text(self, text: str) -> object:
        """Return the value a variable's text stands for, or the text when it stands for none."""
        if self.about.choices or isinstance(self.default, str):
            return text
        if isinstance(self.default, bool):
            return {"true": True, "1": True, "false": False, "0": False}.get(text.strip().lower(), text)
        try:
            return int(text)
        except ValueError:
            return text


def settings_table() -> dict[str, Setting]:
    """Return every setting by its name, in the order of the documentation."""
    from typing import get_type_hints

    hints = get_type_hints(Settings, include_extras=True)
    standard = Settings()
    return {
        name: Setting(name, _VARIABLE_PREFIX + name.upper(), getattr(standard, name), hints[name].__metadata__[0])
        for name in Settings.__struct_fields__
        if name not in (SPAWN, CLUSTER)
    }


def load_settings(paths: Paths, environ: Mapping[str, str], overrides: Mapping[str, Any]) -> Settings:
    """Return the settings in force.

    ``overrides`` holds the values of flags by setting name; ``None`` means that the flag was not given. An empty
    variable counts as not set. Raises ``ConfigError``, naming the file or variable and the key, for a key that is no
    setting and for a value of the wrong type or out of range.
    """
    found = _read(paths)
    spawn = _spawn_kinds(f"{paths.settings}: {SPAWN}", found.pop(SPAWN, {}))
    cluster = _cluster(f"{paths.settings}: {CLUSTER}", found.pop(CLUSTER, {}))
    given: list[tuple[str, str, object]] = [(f"{paths.settings}: {key}", key, value) for key, value in found.items()]
    if any(name.startswith(_VARIABLE_PREFIX) for name in environ):
        given += [
            (setting.variable, name, setting.from_text(environ[setting.variable]))
            for name, setting in settings_table().items()
            if environ.get(setting.variable)
        ]
    given += [(f"--{key.replace('_', '-')}", key, value) for key, value in overrides.items() if value is not None]
    if not given:
        return Settings(spawn=spawn, cluster=cluster)
    table = settings_table()
    values: dict[str, Any] = {}
    for origin, key, value in given:
        setting = table.get(key)
        if setting is None:
            raise ConfigError(f"{origin} is not a setting", hint="Settings are: " + ", ".join(table) + ".")
        if not setting.takes(value):
            raise ConfigError(f"{origin} must be {setting.accepts}, not {value!r}")
        values[key] = value
    return Settings(**values, spawn=spawn, cluster=cluster)


def _spawn_kinds(origin: str, table: object) -> dict[str, SpawnKind]:
    """Return the sessions that may be started; raise ``ConfigError`` for what is no command."""
    if not isinstance(table, dict) or len(table) > SPAWN_KINDS:
        raise ConfigError(f"{origin} must be a table of at most {SPAWN_KINDS} kinds", hint=_SPAWN_HINT)
    return {name: _spawn_kind(f"{origin}.{name}", name, kind) for name, kind in table.items()}


def _spawn_kind(origin: str, name: str, kind: object) -> SpawnKind:
    try:
        found = convert(kind, SpawnKind)
    except ValidationError as error:
        raise ConfigError(f"{origin} is not the description of a command: {error}", hint=_SPAWN_HINT) from None
    if not name.strip() or not found.command or not all(found.command) or "\0" in "".join(found.command):
        raise ConfigError(f"{origin} must name a command, each word a text that is not empty", hint=_SPAWN_HINT)
    if not found.cwd.startswith(("/", "~")):
        raise ConfigError(f"{origin}.cwd must be an absolute path or begin with ~", hint=_SPAWN_HINT)
    return found


def _cluster(origin: str, table: object) -> ClusterSettings:
    """Return how other machines are reached; raise ``ConfigError``, naming the key, for what cannot be meant."""
    if not table:
        return ClusterSettings()
    if isinstance(table, dict) and isinstance(table.get("url"), str):
        table = {**table, "url": (table["url"],) if table["url"] else ()}
    elif isinstance(table, dict) and not isinstance(table.get("url", []), list | tuple):
        raise ConfigError(f"{origin}.url must be a text or an array of texts, not {table['url']!r}", hint=_CLUSTER_HINT)
    try:
        found = convert(table, ClusterSettings)
    except ValidationError as error:
        raise ConfigError(f"{origin} does not say how machines are reached: {error}", hint=_CLUSTER_HINT) from None
    for url in found.url:
        if not url.startswith(("nats://", "tls://")):
            raise ConfigError(f"{origin}.url must begin with nats:// or tls://, not {url!r}", hint=_CLUSTER_HINT)
    for key, value in (("name", found.name), ("node", found.node or "node")):
        if len(value) > CLUSTER_NAME_CHARACTERS or not value.replace("-", "").replace("_", "").isalnum():
            raise ConfigError(
                f"{origin}.{key} must be 1 to {CLUSTER_NAME_CHARACTERS} letters, digits, - and _, not {value!r}"
            )
        if not value.isascii():
            raise ConfigError(f"{origin}.{key} must hold letters of ASCII only, not {value!r}")
    for key in ("credentials", "token_file", "tls_ca", "key_file"):
        path = getattr(found, key)
        if path and not path.startswith(("/", "~")):
            raise ConfigError(f"{origin}.{key} must be an absolute path or begin with ~, not {path!r}")
    if not 0 <= found.replicas <= CLUSTER_REPLICAS:
        raise ConfigError(f"{origin}.replicas must be from 0 to {CLUSTER_REPLICAS}, not {found.replicas}")
    if found.credentials and found.token_file:
        raise ConfigError(f"{origin} must name credentials or token_file, not both")
    if found.url and not found.key_file:
        raise ConfigError(f"{origin}.key_file must name the file with the key that the brokers share")
    return found


_CLUSTER_HINT = "`intercom docs cluster` shows the table for two machines."
_SPAWN_HINT = "A kind is a table such as [spawn.reviewer] with command = ['claude', '-p'] and perhaps cwd = '/work'."


def _read(paths: Paths) -> dict[str, Any]:
    try:
        return _parse(paths.settings, read_ordinary_file(paths.settings))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise ConfigError(f"{paths.settings} cannot be read: {error.strerror}") from error


def _parse(path: os.PathLike[str], content: bytes) -> dict[str, Any]:
    import tomllib  # costs milliseconds, and most homes have no settings file

    try:
        return tomllib.loads(content.decode())
    except RecursionError:
        raise ConfigError(f"{path} is not valid TOML: it is nested too deeply") from None
    except ValueError as error:  # both a decoding and a TOML error
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
