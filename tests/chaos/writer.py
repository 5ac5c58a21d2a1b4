"""A program that writes to a store until it ends, is stopped or is killed, and prints what it does line by line.

Each line is one write, before anything else happens, so that the parent knows what was acknowledged at the time of any fault.
"""

import argparse
import os
import signal
import sys
import threading
from pathlib import Path
from typing import NoReturn

from tailrace.log.options import LogOptions
from tailrace.model.errors import StorageFailedError, StorageFullError, StoreClosedError, TailraceError
from tailrace.model.limits import Limits
from tailrace.store.contract import Store, StoreCommit
from tailrace.store.embedded import EmbeddedStore
from tests.chaos.mutants import MUTANTS
from tests.chaos.workload import MainPlan, ThreadPlan
from tests.support.history import Ack, Attempt, Event, Failure, Note, encode_event, to_changes

FAILED_EXIT = 70
PIPELINE_DEPTH = 8
PAUSE_SECONDS = 0.02


class Writer:
    def __init__(self, store: Store, run: int, threads: int, seed: int) -> None:
        self._store = store
        self._stop = threading.Event()
        self._main = MainPlan(run, threads)
        self._plans = [ThreadPlan(run, thread, seed) for thread in range(1, threads + 1)]

    def stop(self) -> None:
        self._stop.set()

    def run(self, rounds: int, commits: int) -> None:
        self._send(self._main.set_up(self._store))
        for _ in range(rounds):
            workers = [
                threading.Thread(target=self._work, args=(plan, commits, index % 2 == 1))
                for index, plan in enumerate(self._plans)
            ]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            if self._stop.is_set():
                return
            self._send(self._main.trim(self._store))

    def keep_house(self, store: EmbeddedStore) -> None:
        """Save checkpoints and clean, all the time."""
        while not self._stop.wait(PAUSE_SECONDS):
            try:
                store.checkpoint()
                store.clean()
            except StorageFullError:
                continue
            except (StoreClosedError, StorageFailedError):
                return

    def _work(self, plan: ThreadPlan, commits: int, pipelined: bool) -> None:
        room = threading.Semaphore(PIPELINE_DEPTH)
        for _ in range(commits):
            if self._stop.is_set():
                break
            attempt = plan.next()
            if pipelined:
                self._submit(plan, attempt, room)
            else:
                ack = self._send(attempt)
                if ack is not None:
                    plan.answered(attempt, ack)
        for _ in range(PIPELINE_DEPTH):
            room.acquire()

    def _send(self, attempt: Attempt) -> Ack | None:
        say(attempt)
        try:
            receipt = self._store.commit(to_changes(attempt))
        except TailraceError as error:
            self._failed(attempt, error)
            return None
        ack = Ack(attempt.id, receipt.cursor, receipt.hlc, receipt.offsets)
        say(ack)
        return ack

    def _submit(self, plan: ThreadPlan, attempt: Attempt, room: threading.Semaphore) -> None:
        def done(commit: StoreCommit) -> None:
            if commit.error is not None:
                self._failed(attempt, commit.error)
            else:
                ack = Ack(attempt.id, commit.receipt.cursor, commit.receipt.hlc, commit.receipt.offsets)
                say(ack)
                plan.answered(attempt, ack)
            room.release()

        room.acquire()
        say(attempt)
        try:
            self._store.submit(to_changes(attempt), done)
        except TailraceError as error:
            self._failed(attempt, error)
            room.release()

    def _failed(self, attempt: Attempt, error: TailraceError) -> None:
        say(Failure(attempt.id, error.outcome, f"{type(error).__name__}: {error}"))
        if not error.retriable or error.outcome == "unknown":
            self._stop.set()


def say(event: Event) -> None:
    os.write(sys.stdout.fileno(), encode_event(event))


def fail(error: TailraceError) -> NoReturn:
    """Print one line and exit, as a server does when its store has failed."""
    os.write(sys.stderr.fileno(), f"tailrace: {error}\n".encode())
    os._exit(FAILED_EXIT)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1_000_000)
    parser.add_argument("--commits", type=int, default=30)
    parser.add_argument("--durability", choices=("fsync", "relaxed"), default="fsync")
    parser.add_argument("--segment-bytes", type=int, default=16 * 1024)
    parser.add_argument("--checkpoint-batches", type=int, default=40)
    parser.add_argument("--min-free-bytes", type=int, default=0)
    parser.add_argument("--no-housekeeping", action="store_true")
    parser.add_argument("--mutant", choices=sorted(MUTANTS))
    args = parser.parse_args()
    if args.mutant:
        MUTANTS[args.mutant]()
    try:
        store = EmbeddedStore.open(
            args.folder,
            durability=args.durability,
            limits=Limits(min_free_bytes=args.min_free_bytes, tail_cache_bytes=32 * 1024),
            on_failure=fail,
            options=LogOptions(
                segment_bytes=args.segment_bytes,
                piece_bytes=512,
                checkpoint_bytes=2 * args.segment_bytes,
                checkpoint_batches=args.checkpoint_batches,
            ),
        )
    except TailraceError as error:
        fail(error)
    say(Note("open"))
    writer = Writer(store, args.run, args.threads, args.seed)
    signal.signal(signal.SIGTERM, lambda *_: writer.stop())
    housekeeper = threading.Thread(target=writer.keep_house, args=(store,), daemon=True)
    if not args.no_housekeeping:
        housekeeper.start()
    writer.run(args.rounds, args.commits)
    writer.stop()
    if housekeeper.ident:
        housekeeper.join()
    store.close()
    say(Note("closed"))


if __name__ == "__main__":
    main()
