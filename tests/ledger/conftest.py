"""Ledgers, records and small disks for the tests of the ledger."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from jupyter_gpupool.ledger import CardRecord, Job, JobState, LeaseRecord, Ledger, NewJob, NewSession
from jupyter_gpupool.ledger.records import StartOrder
from jupyter_gpupool.scheduler.model import GpuShare, Placement, Request

CARD_MIB = 32768


class Samples:
    """Ordinary records, each field open to change."""

    @staticmethod
    def job(**changes: Any) -> NewJob:
        values: dict[str, Any] = {
            "owner": "ada",
            "group": "vision",
            "name": "train",
            "kind": "script",
            "priority": "normal",
            "limit_s": 3600,
            "grace_s": 120,
            "request": Request(gpus=1, gpu_types=("a100",), cpus_milli=6000, memory_mib=61440),
            "entry": {"script": "train.py", "args": ["--epochs", "3"]},
            "workdir": "/home/ada/work",
            "resumable": True,
            "window": "night",
            "snapshot": "ab" * 32,
            "environment": {"LANG": "C.UTF-8", "HOME": "/home/ada"},
            "interpreter": {"python": "/usr/bin/python3", "kernel": None},
            "provenance": {"git": {"commit": "12ab"}, "held_back": ["TOKEN"]},
            "notify": ("end", "fail"),
        }
        return NewJob(**values | changes)

    @staticmethod
    def session(**changes: Any) -> NewSession:
        request = Request(gpu_mib=CARD_MIB // 8, share=(1, 8), cpus_milli=4000)
        values: dict[str, Any] = {
            "owner": "bob",
            "group": "speech",
            "name": "lab",
            "request": request,
            "limit_s": 7200,
            "pid": 4321,
            "starttime": 99,
        }
        return NewSession(**values | changes)

    @staticmethod
    def cards(count: int = 2) -> list[CardRecord]:
        return [CardRecord(f"SIM-{i}", "node1", i, "Simulated", CARD_MIB) for i in range(count)]

    @staticmethod
    def place(*uuids: str, mib: int = CARD_MIB, milli: int = 1000) -> Placement:
        gpus = tuple(GpuShare(uuid, mib) for uuid in uuids)
        return Placement(("node1",), gpus, milli * len(uuids), "training")


@dataclass
class Open:
    """A ledger on disk and the means to look at it as a fresh process would."""

    path: Path
    ledger: Ledger
    sample: type[Samples] = Samples

    def reopen(self, **changes: Any) -> Ledger:
        self.ledger.close()
        self.ledger = open_ledger(self.path, **changes)
        return self.ledger

    def running(self, now: int = 100, uuid: str = "SIM-0", **changes: Any) -> tuple[Job, LeaseRecord]:
        """Return a job that runs since `now`, with its lease."""
        job = self.ledger.add_job(Samples.job(**changes), now)
        lease = start_job(self.ledger, job.id, Samples.place(uuid), now, mode="whole")
        return self.ledger.job_running(job.id, 1, now), self.ledger.leases[lease.id]

    def again(self, id: int, now: int, uuid: str = "SIM-0") -> Job:
        """Let the next attempt of a queued job run since `now`."""
        lease = start_job(self.ledger, id, Samples.place(uuid), now, mode="whole")
        return self.ledger.job_running(id, lease.attempt, now)

    def end(self, id: int, now: int, outcome: JobState = JobState.COMPLETED, **changes: Any) -> Job:
        """End the present attempt of a job."""
        values: dict[str, Any] = {"exit_code": 0, "signal": None, "reason": "", "diagnosis": None}
        return self.ledger.end_job(id, self.ledger.jobs[id].attempt, outcome, now=now, **values | changes)


def start_job(
    ledger: Ledger, id: int, placement: Placement, now: int, *, mode: str, charge_milli: int = 1000
) -> LeaseRecord:
    """Begin the next attempt of one job."""
    return ledger.start_jobs([StartOrder(id, placement, mode, charge_milli)], now)[0]


def open_ledger(path: Path, *, now: int = 0, boot_id: str = "boot-1", **changes: Any) -> Ledger:
    return Ledger.open(path, now=now, boot_id=boot_id, **changes)


@pytest.fixture
def sample() -> type[Samples]:
    return Samples


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    path = tmp_path / "home" / "ledger.sqlite"
    there = Open(path, open_ledger(path))
    there.ledger.set_cards(Samples.cards())
    yield there
    there.ledger.close()


@pytest.fixture
def ledger(opened: Open) -> Ledger:
    return opened.ledger


@pytest.fixture
def connections() -> Iterator[list[sqlite3.Connection]]:
    """Collect the SQLite connections that are opened."""
    made: list[sqlite3.Connection] = []

    def collect(connection: sqlite3.Connection, _record: object) -> None:
        made.append(connection)

    event.listen(Engine, "connect", collect)
    yield made
    event.remove(Engine, "connect", collect)


@pytest.fixture
def commits() -> Iterator[list[object]]:
    """Collect the transactions that are committed."""
    seen: list[object] = []

    def collect(connection: object) -> None:
        seen.append(connection)

    event.listen(Engine, "commit", collect)
    yield seen
    event.remove(Engine, "commit", collect)


@dataclass
class SmallDisk:
    """A real file system of one MiB in memory."""

    point: Path

    def fill(self) -> None:
        """Leave no byte free."""
        with open(self.point / "ballast", "wb", buffering=0) as ballast:
            for size in (65536, 4096, 1):
                try:
                    while ballast.write(b"x" * size):
                        pass
                except OSError:
                    continue

    def make_room(self) -> None:
        (self.point / "ballast").unlink()

    def remount(self, how: str) -> None:
        _mount("-o", f"remount,{how}", str(self.point))


@pytest.fixture
def small_disk(tmp_path: Path, require: Callable[[str], None]) -> Iterator[SmallDisk]:
    """Mount a tmpfs of one MiB, which takes root."""
    point = tmp_path / "small"
    point.mkdir()
    if os.geteuid() != 0:
        require("only root can mount a small disk")
    mounted = _mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", str(point), check=False)
    if mounted.returncode:
        require(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    yield SmallDisk(point)
    subprocess.run(["umount", "--lazy", str(point)], check=True)  # a failed test may have left files open


def _mount(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["mount", *arguments], check=check, capture_output=True, text=True)


class Writer:
    """A real process that writes to a ledger until it is killed."""

    def __init__(self, path: Path) -> None:
        program = Path(__file__).with_name("writer_process.py")
        self._process = subprocess.Popen(
            [sys.executable, str(program), str(path)], stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid

    def acknowledged(self) -> dict[str, Any]:
        """Wait for one acknowledgement."""
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def kill(self) -> list[dict[str, Any]]:
        """Kill it where it stands and return what it had acknowledged and nobody has read yet."""
        assert self._process.stdout is not None
        self._process.kill()
        rest = self._process.stdout.readlines()
        return [json.loads(line) for line in rest if line.endswith("}\n")]

    def end(self) -> None:
        """Leave nothing of it behind."""
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def writer() -> Iterator[Callable[[Path], Writer]]:
    started: list[Writer] = []

    def start(path: Path) -> Writer:
        started.append(Writer(path))
        return started[-1]

    yield start
    for process in started:
        process.end()
