"""`tailrace shadow run` by hand logs in at a server that demands authentication, over HTTP and over Kafka's protocol."""

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.integration.security.secured import PASSWORD, SecuredServer, secured_server
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess


@pytest.mark.parametrize("is_tls", [False, True], ids=["plain text", "TLS"])
def test_a_shadow_that_is_run_by_hand_logs_in_on_both_sides_of_the_server(tmp_path: Path, is_tls: bool) -> None:
    toml, authority, flags = '[security]\nauthentication = "required"\n', None, []
    if is_tls:
        authority = Authority(tmp_path)
        issued = authority.server()
        toml += f'tls_certificate = "{issued.certificate}"\ntls_key = "{issued.key}"\n'
        flags = ["--ca-file", str(authority.file)]
    verify = True if authority is None else str(authority.file)
    with secured_server(tmp_path / "origin", toml, verify) as origin, ServerProcess(tmp_path / "target") as target:
        origin.sql("CREATE TOPIC acme.orders")
        publish(origin, "first")
        origin.sql(f"CREATE SHADOW copy TO KAFKA '{target.kafka}' WITH (topics = 'acme.>', copied_by = 'command')")
        user = origin.create_user("ALL ON SERVER", "ALL ON ALL TOPICS", "ALL ON ALL GROUPS")
        password = tmp_path / "password"
        password.write_text(PASSWORD)
        command = [sys.executable, "-m", "tailrace", "shadow", "run", "copy", "--server", origin.url]
        login = ["--user", user, "--password-file", str(password), *flags]
        refused = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
        assert (refused.returncode, "authentication" in refused.stderr) == (1, True), refused.stderr
        process = subprocess.Popen([*command, *login], stderr=subprocess.PIPE, text=True, env=dict(os.environ))
        try:
            eventually(lambda: copied(target) == ["first"], "the record is copied")
            publish(origin, "second")
            eventually(lambda: copied(target) == ["first", "second"], "the second record is copied")
        finally:
            process.terminate()
            _, shown = process.communicate(timeout=PATIENCE_SECONDS)
        assert PASSWORD not in shown


def publish(server: SecuredServer, value: str) -> None:
    server.sql(f'INSERT INTO "acme.orders" (value) VALUES (\'"{value}"\')')


def copied(target: ServerProcess) -> list[object]:
    answer = httpx.post(f"{target.url}/api/topics/consume", json={"topic": "acme.orders"}, timeout=PATIENCE_SECONDS)
    return [message["value"] for message in answer.json().get("messages", [])]
