"""The settings of a server and of a pipeline: defaults, then the configuration file, then the command line.

The file is TOML with one table for each section below. An unknown key is an error: a misspelled setting that is ignored in
silence is worse than a server that does not start.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec

from tailrace.broker.publishing.snowflake import MAX_NODE
from tailrace.broker.security.settings import SecuritySettings
from tailrace.broker.settings import BrokerSettings
from tailrace.cli.log_format import LogFormat
from tailrace.cli.security_settings import check_combinations, check_exposure, check_values, switched_off
from tailrace.kafka.cluster import MOST_TELEMETRY_SECONDS, KafkaSettings
from tailrace.model.address import Address, parse_address
from tailrace.model.commit import Durability
from tailrace.model.errors import ConfigurationError
from tailrace.model.limits import Limits
from tailrace.model.pipeline import Latency
from tailrace.model.suggestions import did_you_mean

_MAY_BE_ZERO = {"node": MAX_NODE}
"""Settings of the broker that may be 0, each with its maximum."""


class ServerSection(msgspec.Struct, frozen=True, kw_only=True):
    """`[server]`: the same names as the flags of `tailrace serve`, which override it."""

    data: str | None = None
    """Folder that holds everything; created if it does not exist."""
    http: str = "127.0.0.1:8080"
    """Address of the HTTP listener. Port 0 takes any free port; the ready line says which."""
    kafka: str = "127.0.0.1:9092"
    """Address of the Kafka listener. Port 0 takes any free port."""
    advertise: str | None = None
    """Address that Kafka clients are told to connect to, if it is not that of the listener."""
    durability: Durability = "fsync"
    """`fsync`: an acknowledged record survives power loss. `relaxed`: it survives a crash of the process only."""
    allow_remote: bool = False
    """Listen on addresses that other machines can reach."""
    no_authentication: bool = False
    """Demand no authentication, also on such addresses."""
    no_tls: bool = False
    """Speak no TLS, also on such addresses."""
    log_format: LogFormat = "text"
    """How lines of the log are written: as text, or as one JSON object each."""


class PipelineSection(msgspec.Struct, frozen=True, kw_only=True):
    """`[pipeline]`: the same names as flags of `tailrace pipeline` and `tailrace up`, which override it."""

    latency: Latency | None = None
    """How to route; `None` does what ALTER PIPELINE has set."""
    jars: str | None = None
    """A folder with the jars of Spark's Kafka connector."""
    packages: str | None = None
    """Packages that Spark downloads."""
    archives: str | None = None
    """The archive of `tailrace pipeline package`, which workers of a cluster unpack."""


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    server: ServerSection = ServerSection()
    pipeline: PipelineSection = PipelineSection()
    broker: BrokerSettings = BrokerSettings()
    kafka: KafkaSettings = KafkaSettings()
    security: SecuritySettings = SecuritySettings()
    limits: Limits = Limits()


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a server needs to start, checked."""

    data: Path
    http: Address
    kafka: Address
    advertise: Address | None
    durability: Durability
    broker: BrokerSettings
    kafka_settings: KafkaSettings
    security: SecuritySettings
    limits: Limits
    log_format: LogFormat


def read_configuration(file: Path) -> Configuration:
    try:
        raw = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"can't read the configuration file {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} is not TOML: {error}") from error
    try:
        _check_keys(raw, Configuration, "")
        configuration = msgspec.convert(raw, Configuration)
        _check_ranges(configuration)
    except ConfigurationError as error:
        raise ConfigurationError(f"{file}: {error}") from error
    return configuration


def resolve_settings(
    configuration: Configuration,
    *,
    data: Path | None = None,
    http: str | None = None,
    kafka: str | None = None,
    advertise: str | None = None,
    durability: Durability | None = None,
    allow_remote: bool = False,
    no_authentication: bool = False,
    no_tls: bool = False,
    log_format: LogFormat | None = None,
) -> ServerSettings:
    """Override the file with the command line, and check the result."""
    server = configuration.server
    folder = data or (Path(server.data) if server.data else None)
    if folder is None:
        raise ConfigurationError("no data folder: pass --data DIR, or set data under [server] in the configuration file")
    advertised = advertise or server.advertise
    # What the file contradicts itself in is an error; a flag overrides the file.
    without_authentication = no_authentication or server.no_authentication
    without_tls = no_tls or server.no_tls
    security = switched_off(configuration.security, no_authentication=no_authentication, no_tls=no_tls)
    settings = ServerSettings(
        data=folder,
        http=parse_address(http or server.http),
        kafka=parse_address(kafka or server.kafka),
        advertise=parse_address(advertised) if advertised else None,
        durability=durability or server.durability,
        broker=configuration.broker,
        kafka_settings=configuration.kafka,
        security=security,
        limits=configuration.limits,
        log_format=log_format or server.log_format,
    )
    if settings.http == settings.kafka and settings.http.port != 0:
        raise ConfigurationError(
            f"HTTP and Kafka can't both listen on {settings.http}; choose another port with --http or --kafka"
        )
    if server.no_authentication and security.authentication == "required":
        raise ConfigurationError('server.no_authentication and security.authentication = "required" contradict each other')
    if server.no_tls and security.tls_certificate is not None:
        raise ConfigurationError("server.no_tls and security.tls_certificate contradict each other")
    check_combinations(security)
    check_exposure(
        (settings.http, settings.kafka),
        security,
        allow_remote=allow_remote or server.allow_remote,
        no_authentication=without_authentication,
        no_tls=without_tls,
    )
    return settings


def resolve_pipeline(
    file: Path | None,
    *,
    latency: Latency | None = None,
    jars: Path | None = None,
    packages: str | None = None,
    archives: str | None = None,
) -> PipelineSection:
    """Override the file's section `[pipeline]` with the command line."""
    section = PipelineSection() if file is None else read_configuration(file).pipeline
    flags = {"latency": latency, "jars": None if jars is None else str(jars), "packages": packages, "archives": archives}
    return msgspec.structs.replace(section, **{name: value for name, value in flags.items() if value is not None})


def _check_keys(raw: Mapping[str, Any], known: type[msgspec.Struct], path: str) -> None:
    fields = {field.name: field.type for field in msgspec.structs.fields(known)}
    for name, value in raw.items():
        if name not in fields:
            raise ConfigurationError(f"unknown key {path}{name}{_known_keys_hint(name, fields)}")
        kind = fields[name]
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            if not isinstance(value, dict):
                raise ConfigurationError(f"{path}{name} is {value!r}; it must be a section, [{path}{name}]")
            _check_keys(value, kind, f"{path}{name}.")
            continue
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError:
            raise ConfigurationError(f"{path}{name} is {value!r}; it must be {_expected_value(kind)}") from None


def _known_keys_hint(name: str, fields: Mapping[str, Any]) -> str:
    """Return the key that was probably meant, or else all keys of the section."""
    sections = [
        section
        for section, kind in fields.items()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and name in kind.__struct_fields__
    ]
    if sections:
        return f"; it belongs under [{sections[0]}]"
    return did_you_mean(name, fields) or f"; the keys here are {', '.join(sorted(fields))}"


def _expected_value(kind: Any) -> str:
    """Describe what a value of this type looks like in the file."""
    if get_origin(kind) is tuple:
        return f"a list of {_expected_value(get_args(kind)[0])}"
    kind = next((part for part in get_args(kind) if get_origin(part) is Literal), kind)
    if get_origin(kind) is Literal:
        return " or ".join(f'"{choice}"' for choice in get_args(kind))
    if kind is bool:
        return "true or false"
    return "a whole number" if kind is int else "text in quotes"


def _check_ranges(configuration: Configuration) -> None:
    sections = {"limits": configuration.limits, "broker": configuration.broker, "kafka": configuration.kafka}
    for section, values in sections.items():
        for name, value in msgspec.structs.asdict(values).items():
            if not isinstance(value, bool) and value < 1 and name not in _MAY_BE_ZERO:
                raise ConfigurationError(f"{section}.{name} is {value}; it must be at least 1")
    seconds = configuration.kafka.telemetry_interval_seconds
    if seconds > MOST_TELEMETRY_SECONDS:
        raise ConfigurationError(
            f"kafka.telemetry_interval_seconds is {seconds}; it must be from 1 to {MOST_TELEMETRY_SECONDS}"
        )
    for name, most in _MAY_BE_ZERO.items():
        value = getattr(configuration.broker, name)
        if not 0 <= value <= most:
            raise ConfigurationError(f"broker.{name} is {value}; it must be from 0 to {most}")
    check_values(configuration.security)
