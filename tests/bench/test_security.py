"""What is measured with authentication and TLS: clients log in, the figures are of that, and logins are counted."""

import asyncio
from pathlib import Path

import pytest

from bench.audit import AuditFailure
from bench.kafka import checks, logins, secured
from bench.kafka.comparison import check, comparing
from bench.kafka.login_storm import Storm, StormProcess
from bench.kafka.tasks import Load, Produce, Span
from bench.machine import exact_cpu_seconds_of
from bench.peers.login import Account, Logins, can_log_in, cipher_of
from bench.peers.secured import AuthenticatedTailracePeer, SecuredTailracePeer
from bench.peers.servers import PeerFailure, answers_kafka, free_address
from bench.worker_process import expect
from bench.workspace import Workspace
from tests.bench.scale import TINY

pytestmark = pytest.mark.long


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, TINY, lambda _: None)


def test_the_comparison_with_kafka_gives_figures_and_says_the_cipher(workspace: Workspace) -> None:
    section = secured.run(workspace, SecuredTailracePeer, SecuredTailracePeer)

    assert "TLSv1.3, TLS_AES_256_GCM_SHA384" in section.text
    assert [figure.bar for figure in section.figures] == [secured.BAR] * 4
    assert all(min(figure.ours.values) > 0 for figure in section.figures)
    assert list(workspace.root.iterdir()) == []


def test_servers_with_different_ciphers_are_not_compared(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter(["TLSv1.3, TLS_AES_256_GCM_SHA384", "TLSv1.2, ECDHE-ECDSA-AES128-GCM-SHA256"])
    monkeypatch.setattr(secured, "cipher_of", lambda address, account: next(found))

    with pytest.raises(AuditFailure, match=r"speaks TLSv1\.3"):
        secured.run(workspace, SecuredTailracePeer, SecuredTailracePeer)


def test_the_cost_of_checks_is_told_for_every_round_of_all_servers(workspace: Workspace) -> None:
    section = checks.run(workspace)

    rounds = TINY.kafka.check_pairs * TINY.kafka.check_rounds
    assert len([figure for figure in section.figures if figure.bar]) == 3
    for figure in section.figures:
        assert len(figure.ours.values) == rounds
        assert figure.peers is not None
        assert min(*figure.ours.values, *figure.peers.values) > 0
    assert list(workspace.root.iterdir()) == []


def test_a_storm_has_figures_with_and_without_the_password(workspace: Workspace) -> None:
    section = logins.run(workspace)

    judged = [figure for figure in section.figures if figure.peers and figure.bar]
    assert [figure.name for figure in judged] == ["delay beside logins, p99", "delay beside failed logins, p99"]
    assert all(min(figure.ours.values) > 0 for figure in section.figures)
    assert list(workspace.root.iterdir()) == []


def test_who_did_not_log_in_or_has_the_wrong_password_is_refused(workspace: Workspace) -> None:
    with comparing(workspace, SecuredTailracePeer, "relaxed") as compared:
        address, settings = compared.peer.address, compared.peer.client_settings
        account = Account(settings["sasl.username"], settings["sasl.password"], settings["ssl.ca.location"])

        assert can_log_in(address, account)
        assert not can_log_in(address, Account(account.user, "guessed", account.authority))
        assert not can_log_in(address, Account(account.user, account.password))
        assert not answers_kafka(address)
        assert cipher_of(address, account).startswith("TLSv1.")


def test_a_client_that_logs_in_again_does_not_hash_its_password_again(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with comparing(workspace, AuthenticatedTailracePeer, "relaxed") as compared:
        settings = compared.peer.client_settings
        again = Logins(compared.peer.address, Account(settings["sasl.username"], settings["sasl.password"]))
        assert asyncio.run(again.log_in())
        monkeypatch.setattr("hashlib.pbkdf2_hmac", None)
        assert asyncio.run(again.log_in())


def test_every_login_of_a_storm_is_counted(workspace: Workspace) -> None:
    with comparing(workspace, SecuredTailracePeer, "relaxed") as compared, StormProcess(compared.peer) as storm:
        right = storm.ask(Storm(20, 200, is_right=True))
        wrong = storm.ask(Storm(3, 200, is_right=False))

        assert (right.accepted, right.refused, len(right.seconds)) == (20, 0, 20)
        assert (wrong.accepted, wrong.refused, len(wrong.seconds)) == (0, 3, 3)
        compared.peer.stop()
        with pytest.raises(AuditFailure, match="a login"):
            storm.ask(Storm(1, 200, is_right=True))


def test_a_storm_that_is_not_let_in_fails_the_subject(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "Storm", lambda count, per_second, is_right: Storm(count, per_second, not is_right))

    with pytest.raises(AuditFailure, match="logins with"):
        logins.run(workspace)


def test_the_cpu_of_a_load_is_that_of_the_server_while_the_clock_runs(workspace: Workspace) -> None:
    with comparing(workspace, AuthenticatedTailracePeer, "relaxed") as compared:
        before = exact_cpu_seconds_of(compared.peer.pid)
        load = compared.new_topic(Load(topic="some", records=500, record_bytes=1_000))
        sent = expect(Span, compared.sender.ask(Produce(load)))
        read = check(compared, load)
        used = exact_cpu_seconds_of(compared.peer.pid) - before

        assert sent.cpu_seconds > 0
        assert read.cpu_seconds > 0
        assert sent.cpu_seconds + read.cpu_seconds < used


def test_a_server_that_does_not_make_the_user_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = AuthenticatedTailracePeer(tmp_path, "relaxed")
    monkeypatch.setattr("bench.peers.secured._ITERATIONS", 1)
    try:
        with pytest.raises(PeerFailure, match="the user of clients could not be made"):
            peer.start()
    finally:
        peer.stop()


def test_nobody_can_log_in_where_nothing_listens() -> None:
    assert not can_log_in(free_address(), Account("anybody", "anything"))
