"""Defaults, then the file, then the command line; and nothing unknown in between."""

from pathlib import Path
from typing import Any

import pytest

from tailrace.broker.security.settings import SecuritySettings
from tailrace.cli.settings import (
    Configuration,
    PipelineSection,
    ServerSection,
    read_configuration,
    resolve_pipeline,
    resolve_settings,
)
from tailrace.model.address import Address
from tailrace.model.errors import ConfigurationError


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "tailrace.toml"
    file.write_text(text)
    return file


def test_defaults_listen_on_loopback_only_and_sync_before_they_answer(tmp_path: Path) -> None:
    settings = resolve_settings(Configuration(), data=tmp_path)
    assert settings.http == Address("127.0.0.1", 8080)
    assert settings.kafka == Address("127.0.0.1", 9092)
    assert settings.advertise is None
    assert settings.durability == "fsync"


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        """
        [server]
        data = "/from/file"
        http = "127.0.0.1:1"
        durability = "relaxed"
        [limits]
        payload_bytes = 5
        """,
    )
    settings = resolve_settings(read_configuration(file), http="127.0.0.1:2")
    assert settings.data == Path("/from/file")
    assert settings.http.port == 2
    assert settings.durability == "relaxed"
    assert settings.limits.payload_bytes == 5
    assert settings.limits.headers == 32


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "[limits]\npayload_byte = 5",
            "unknown key limits.payload_byte; did you mean 'payload_bytes'?",
        ),
        ("[limits]\nelephants = 5", "unknown key limits.elephants; the keys here are answer_bytes, "),
        ("[limit]\n", "unknown key limit; did you mean 'limits'?"),
        ('http = "127.0.0.1:1"', "unknown key http; it belongs under [server]"),
        (
            "[server]\nport = 5",
            "unknown key server.port; the keys here are advertise, allow_remote, data, durability, http, kafka, log_format,",
        ),
        ("[limits]\npayload_bytes = 0", "limits.payload_bytes is 0; it must be at least 1"),
        ("[kafka]\ntelemetry_interval_seconds = 0", "kafka.telemetry_interval_seconds is 0; it must be at least 1"),
        ("[kafka]\ntelemetry_interval_seconds = 5000", "kafka.telemetry_interval_seconds is 5000; it must be from 1 to 3600"),
        ('[kafka]\nclient_telemetry = "no"', "kafka.client_telemetry is 'no'; it must be true or false"),
        ("[broker]\nretention_interval_seconds = 0", "broker.retention_interval_seconds is 0; it must be at least 1"),
        ("[broker]\nnode = 1024", "broker.node is 1024; it must be from 0 to 1023"),
        ('[limits]\npayload_bytes = "big"', "limits.payload_bytes is 'big'; it must be a whole number"),
        ('[server]\ndurability = "always"', 'server.durability is \'always\'; it must be "fsync" or "relaxed"'),
        ("server = 5", "server is 5; it must be a section, [server]"),
        ("[server]\nhttp = 8080", "server.http is 8080; it must be text in quotes"),
        ("[server]\nallow_remote = 1", "server.allow_remote is 1; it must be true or false"),
        ('[pipeline]\nlatency = "soon"', 'pipeline.latency is \'soon\'; it must be "batch" or "realtime"'),
        ("[pipeline]\njars = true", "pipeline.jars is True; it must be text in quotes"),
        ('latency = "batch"', "unknown key latency; it belongs under [pipeline]"),
        ('[security]\nauthentication = "on"', 'security.authentication is \'on\'; it must be "off" or "required"'),
        ('authentication = "off"', "unknown key authentication; it belongs under [security]"),
        (
            '[security]\nsasl_mechanisms = ["GSSAPI"]',
            'security.sasl_mechanisms is [\'GSSAPI\']; it must be a list of "PLAIN" or "SCRAM-SHA-256" or',
        ),
        ('[security]\ncertificate_name = "DN"', 'security.certificate_name is \'DN\'; it must be "CN" or "DNS" or'),
        ("[security]\nsession_seconds = 0", "security.session_seconds is 0; it must be at least 1"),
        ('[security]\noidc_keys = "http://a/keys"', "it must be a file or an address that begins with https://"),
        ("[server", "is not TOML"),
    ],
)
def test_a_bad_file_is_rejected_with_its_name_and_what_is_wrong(tmp_path: Path, text: str, complaint: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ConfigurationError) as refusal:
        read_configuration(file)
    assert str(file) in str(refusal.value)
    assert complaint in str(refusal.value)


def test_a_missing_file_is_rejected_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"can't read .*nowhere.toml: No such file or directory"):
        read_configuration(tmp_path / "nowhere.toml")


def test_http_and_kafka_need_two_addresses(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"can't both listen on 127\.0\.0\.1:9092; choose another port with --http or --kafka"
    ):
        resolve_settings(Configuration(), data=tmp_path, http="127.0.0.1:9092")
    both_free = resolve_settings(Configuration(), data=tmp_path, http="127.0.0.1:0", kafka="127.0.0.1:0")
    assert both_free.http == both_free.kafka


def test_without_a_folder_there_is_no_server() -> None:
    with pytest.raises(ConfigurationError, match="pass --data DIR"):
        resolve_settings(Configuration())


@pytest.mark.parametrize("address", ["0.0.0.0:8080", "[::]:8080", "192.168.1.5:80", "broker.example:8080"])
@pytest.mark.parametrize("listener", ["http", "kafka"])
def test_addresses_that_others_can_reach_need_an_explicit_word(tmp_path: Path, listener: str, address: str) -> None:
    with pytest.raises(ConfigurationError, match="--allow-remote"):
        resolve_settings(SAFE, data=tmp_path, **{listener: address})  # type: ignore[arg-type]
    settings = resolve_settings(SAFE, data=tmp_path, allow_remote=True, **{listener: address})  # type: ignore[arg-type]
    assert str(getattr(settings, listener)) == address


SAFE = Configuration(security=SecuritySettings(authentication="required", tls_certificate="server.pem"))
REMOTE = "0.0.0.0:8080"


@pytest.mark.parametrize(
    ("security", "flags", "wanted", "not_wanted"),
    [
        (SecuritySettings(), {}, ("--no-authentication", "--no-tls"), ()),
        (SecuritySettings(), {"no_tls": True}, ("--no-authentication",), ("--no-tls",)),
        (SecuritySettings(), {"no_authentication": True}, ("--no-tls",), ("--no-authentication",)),
        (SecuritySettings(authentication="required"), {}, ("--no-tls",), ("--no-authentication",)),
        (SecuritySettings(tls_certificate="server.pem"), {}, ("--no-authentication",), ("--no-tls",)),
    ],
)
def test_a_server_that_others_reach_has_each_protection_or_is_told_to_do_without_it(
    tmp_path: Path,
    security: SecuritySettings,
    flags: dict[str, bool],
    wanted: tuple[str, ...],
    not_wanted: tuple[str, ...],
) -> None:
    configuration = Configuration(server=ServerSection(http=REMOTE, allow_remote=True), security=security)
    with pytest.raises(ConfigurationError) as refusal:
        resolve_settings(configuration, data=tmp_path, **flags)  # type: ignore[arg-type]
    assert "tailrace init" in str(refusal.value)
    assert all(flag in str(refusal.value) for flag in wanted)
    assert not any(flag in str(refusal.value) for flag in not_wanted)
    assert resolve_settings(configuration, data=tmp_path, no_authentication=True, no_tls=True).http.port == 8080


def test_the_file_can_do_without_protections_too(tmp_path: Path) -> None:
    file = written(tmp_path, f'[server]\nhttp = "{REMOTE}"\nallow_remote = true\nno_authentication = true\nno_tls = true\n')
    assert resolve_settings(read_configuration(file), data=tmp_path).security == SecuritySettings()


def test_flags_switch_off_what_the_file_has(tmp_path: Path) -> None:
    settings = resolve_settings(SAFE, data=tmp_path, no_authentication=True, no_tls=True)
    assert settings.security == SecuritySettings()


@pytest.mark.parametrize(
    ("section", "complaint"),
    [
        ({"tls_key": "key.pem"}, "tls_key has no effect without tls_certificate"),
        ({"client_ca": "ca.pem"}, "client_ca has no effect while client_certificates"),
        ({"client_certificates": "required", "client_ca": "ca.pem"}, "set tls_certificate"),
        ({"client_certificates": "accepted", "tls_certificate": "server.pem"}, "set client_ca"),
        (
            {"client_certificates": "required", "client_ca": "ca.pem", "tls_certificate": "server.pem"},
            'set authentication to "required"',
        ),
        ({"oidc_audience": "tailrace"}, "oidc_audience has no effect without oidc_issuer"),
        ({"oidc_issuer": "https://login.example"}, "set oidc_audience too"),
        ({"oidc_issuer": "https://login.example", "oidc_audience": "tailrace"}, "set oidc_keys too"),
        ({"authentication": "required", "sasl_mechanisms": ()}, "no Kafka client can authenticate"),
        ({"authentication": "required", "sasl_mechanisms": ("PLAIN",)}, "need TLS"),
    ],
)
def test_settings_that_protect_nothing_or_let_nobody_in_are_rejected(
    tmp_path: Path, section: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        resolve_settings(Configuration(security=SecuritySettings(**section)), data=tmp_path)


@pytest.mark.parametrize("flag", ["no_authentication", "no_tls"])
def test_a_file_that_contradicts_itself_is_rejected(tmp_path: Path, flag: str) -> None:
    configuration = Configuration(server=ServerSection(**{flag: True}), security=SAFE.security)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=f"server.{flag} and security.* contradict each other"):
        resolve_settings(configuration, data=tmp_path)


def test_the_section_of_security_reaches_the_server(tmp_path: Path) -> None:
    file = written(tmp_path, '[security]\nauthentication = "required"\nsasl_mechanisms = ["SCRAM-SHA-512"]\n')
    security = resolve_settings(read_configuration(file), data=tmp_path).security
    assert security == SecuritySettings(authentication="required", sasl_mechanisms=("SCRAM-SHA-512",))


@pytest.mark.parametrize("address", ["127.0.0.1:8080", "127.1.2.3:1", "[::1]:8080", "localhost:0"])
def test_loopback_addresses_need_none(tmp_path: Path, address: str) -> None:
    assert str(resolve_settings(Configuration(), data=tmp_path, http=address).http) == address


@pytest.mark.parametrize(
    "address", ["", "8080", ":8080", "localhost", "localhost:", "localhost:http", "localhost:65536", "::1:8080", "a:-1"]
)
def test_what_is_not_host_and_port_is_rejected_with_the_value(tmp_path: Path, address: str) -> None:
    file = written(tmp_path, f'[server]\nhttp = "{address}"')
    with pytest.raises(ConfigurationError) as refusal:
        resolve_settings(read_configuration(file), data=tmp_path)
    assert repr(address) in str(refusal.value)


def test_a_pipeline_without_settings_does_what_the_server_says() -> None:
    assert resolve_pipeline(None) == PipelineSection(latency=None, jars=None, packages=None)


def test_flags_of_a_pipeline_win_over_its_section(tmp_path: Path) -> None:
    file = written(tmp_path, '[pipeline]\nlatency = "realtime"\njars = "connector"\n')
    assert resolve_pipeline(file) == PipelineSection(latency="realtime", jars="connector")
    given = resolve_pipeline(file, latency="batch", jars=Path("elsewhere"), packages="a:b:1")
    assert given == PipelineSection(latency="batch", jars="elsewhere", packages="a:b:1")


def test_a_server_takes_a_file_with_a_section_for_its_pipeline(tmp_path: Path) -> None:
    file = written(tmp_path, '[server]\ndata = "/from/file"\n[pipeline]\nlatency = "realtime"\n')
    assert resolve_settings(read_configuration(file)).data == Path("/from/file")
