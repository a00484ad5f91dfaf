"""Processes as /proc shows them: who descends from whom, and who carries a job's mark.

Owns: reading /proc and signalling process ids. Never: a control group (`cgroups` does that),
a decision on when a tree must end.
"""

from __future__ import annotations

import os
import signal as signals
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from jupyter_gpupool.engines.local.cgroups import Leaf

MARK = "GPUPOOL_ATTEMPT_DIR"


@dataclass(frozen=True, slots=True)
class Process:
    """The part of ``/proc/<pid>/stat`` that tells one process from another of the same id."""

    parent: int
    starttime: int
    zombie: bool


def look_at(pid: int) -> Process | None:
    """Return what is at `pid`, or None if nothing is."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return Process(parent=int(fields[1]), starttime=int(fields[19]), zombie=fields[0] in (b"Z", b"X"))


def starttime(pid: int) -> int | None:
    """Clock ticks after boot at which `pid` started; with the boot id it names a process for good."""
    process = look_at(pid)
    return process.starttime if process else None


def all_pids() -> list[int]:
    """Every process id of the machine."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def descendants(root: int) -> set[int]:
    """Every live process below `root`; complete when `root` is a child subreaper."""
    children: dict[int, list[int]] = defaultdict(list)
    live: set[int] = set()
    for pid in all_pids():
        process = look_at(pid)
        if process:
            children[process.parent].append(pid)
            if not process.zombie:
                live.add(pid)
    found: set[int] = set()
    ahead = children[root]
    while ahead:
        pid = ahead.pop()
        if pid not in found:
            found.add(pid)
            ahead.extend(children[pid])
    return found & live


def marked(job_dir: str) -> set[int]:
    """Live processes whose environment names `job_dir`: what is left to go by once a runner is gone."""
    mark = f"{MARK}={job_dir}".encode()
    found = set()
    for pid in all_pids():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if mark in environment.split(b"\0"):
            found.add(pid)
    return found


def send(pids: Iterable[int], signal: int) -> None:
    """Signal each process that still exists."""
    for pid in pids:
        try:
            os.kill(pid, signal)
        except (ProcessLookupError, PermissionError):
            pass


@dataclass(frozen=True, slots=True)
class Tree:
    """Every process of one job, by all that ties them to it.

    `leaf` holds them for certain where there is one; `runner` is the subreaper above them
    (0 once it is gone); `job_dir` marks their environment.
    """

    leaf: Leaf | None
    runner: int
    job_dir: str

    def pids(self) -> set[int]:
        """Live processes of the job, the runner not among them."""
        found = self.leaf.pids() if self.leaf else set()
        found |= descendants(self.runner) if self.runner else marked(self.job_dir)
        return found - {self.runner, os.getpid()}

    def ask(self) -> None:
        """SIGTERM to every process, parents before children; the stopped ones are woken to take it.

        A shell whose command is gone before it hears of the end itself goes on with the next command.
        """
        pids = sorted(self.pids(), key=lambda pid: (starttime(pid) or 0, pid))
        send(pids, signals.SIGTERM)
        send(pids, signals.SIGCONT)

    def kill(self) -> bool:
        """SIGKILL to every process; True once there is none left. To be repeated until then."""
        if self.leaf:
            self.leaf.kill()
        pids = self.pids()
        send(pids, signals.SIGKILL)
        return not pids
