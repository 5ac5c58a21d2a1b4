"""Throughput with authentication and TLS on, beside Apache Kafka with the same."""

from functools import partial
from itertools import cycle

from bench.audit import AuditFailure
from bench.figures import Bar, Figure, Section, take_turns
from bench.kafka.comparison import Comparison, compare, pass_through
from bench.kafka.throughput import DEFAULT, LARGE, Case, cpu_of, figures_of, speeds
from bench.peers.login import Account, cipher_of
from bench.peers.servers import MakePeer, Peer
from bench.workspace import Workspace

_RECORD_BYTES = 1_000
_PAUSE_SECONDS = 0.1
"""Until the consumer has logged in to the coordinator of its group, too."""
_CASES = [Case(_RECORD_BYTES, batching, partitions, _PAUSE_SECONDS) for batching in (DEFAULT, LARGE) for partitions in (1, 12)]
_FEW_CASES = [case for case in _CASES if case.batching is DEFAULT]
BAR = Bar("at least", 0.8)
_WARM_UP_TURNS = 3
"""Loads of 1 KB before the first round, besides those of every comparison: Java's encryption is slow until it is compiled."""


def run(workspace: Workspace, ours: MakePeer, other: MakePeer) -> Section:
    scale = workspace.scale.kafka
    figures: list[Figure] = []
    remarks: list[str] = []
    with compare(workspace, ours, other, "relaxed") as both:
        cipher = _common_cipher(both)
        for compared in both:
            for _ in range(_WARM_UP_TURNS):
                pass_through(compared, _CASES[0].load(scale.records(_RECORD_BYTES)))
        for case in _CASES if scale.has_every_shape else _FEW_CASES:
            workspace.say(f"SASL_SSL: {case.name}")
            side = partial(speeds, case, scale.reads, both, cycle((False, True)))
            found = take_turns({"both": side}, scale.records(_RECORD_BYTES), scale.rounds)
            our_speeds, other_speeds = zip(*found["both"], strict=True)
            figures += figures_of(case, both.other.peer.name, our_speeds, other_speeds, BAR, BAR)
            remarks.append(f"{case.name}: {cpu_of(our_speeds)}; {both.other.peer.name} {cpu_of(other_speeds)}.")
    return Section(
        title="Beside Kafka: produce and consume with SCRAM and TLS, `relaxed`",
        text="The same as without: one producer sends as fast as it can until the last record is acknowledged (`acks=all`),"
        " then consumers read everything from the start, at both servers in turn. Here clients log in by SCRAM-SHA-512 over TLS"
        " (`SASL_SSL`), as a user who may read and write because it was granted; Kafka has its `StandardAuthorizer`. Both"
        f" servers have certificates of the same kind (ECDSA, P-256) and speak {cipher} with a client that leaves the choice to"
        " them. To log in is not part of the time.",
        figures=figures,
        remarks=["CPU that the server uses for 1 GB in and for 1 GB out, Tailrace first:", *remarks],
    )


def _common_cipher(both: Comparison) -> str:
    ours, other = (_cipher(compared.peer) for compared in both)
    if ours != other:
        raise AuditFailure(f"{both.ours.peer.name} speaks {ours}, and {both.other.peer.name} {other}")
    return ours


def _cipher(peer: Peer) -> str:
    settings = peer.client_settings
    account = Account(settings["sasl.username"], settings["sasl.password"], settings["ssl.ca.location"])
    return cipher_of(peer.address, account)
