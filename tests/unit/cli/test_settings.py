"""Defaults, then the file, then the command line; and nothing unknown in between."""

from pathlib import Path

import pytest

from tailrace.cli.settings import Configuration, PipelineSection, read_configuration, resolve_pipeline, resolve_settings
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
            "unknown key server.port; the keys here are advertise, allow_remote, data, durability, http, kafka",
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
        resolve_settings(Configuration(), data=tmp_path, **{listener: address})  # type: ignore[arg-type]
    settings = resolve_settings(Configuration(), data=tmp_path, allow_remote=True, **{listener: address})  # type: ignore[arg-type]
    assert str(getattr(settings, listener)) == address


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
