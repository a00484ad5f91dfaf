"""Who is on a card without a lease.

Owns: the way from a pid to the lease it belongs to, and the list of processes with none.
Never: a signal. Strangers are reported; what to do about them is for people.

A pid belongs to a lease by the first of these that tells: the control group it is in, which it
cannot forge; its chain of parents; the lease named in its environment, believed only of the
lease's own user, since anyone can write there.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .base import Process

PROC = Path("/proc")
LEASE_VARIABLE = b"GPUPOOL_LEASE_ID="


@dataclass(frozen=True, slots=True)
class Holder:
    """The first process of a lease: what the rest of its processes are recognised by.

    `started` is the process's start in clock ticks since boot (field 22 of ``/proc/PID/stat``), so
    that a pid used again is not taken for the holder. `cgroup` is the lease's own leaf: its folder,
    or its path inside the hierarchy.
    """

    lease: int
    pid: int
    started: int
    uid: int
    cgroup: str | None = None


@dataclass(frozen=True, slots=True)
class Stranger:
    """A process on a card that belongs to no lease; `user` is None where the uid has no name."""

    pid: int
    uuid: str
    mib: int | None
    user: str | None
    command: str


def strangers(
    processes: Iterable[Process], holders: Sequence[Holder], *, proc: Path = PROC
) -> list[Stranger]:
    """Return the processes that belong to none of the leases; one that has ended meanwhile is no stranger."""
    found = []
    for process in processes:
        folder = proc / str(process.pid)
        try:
            if lease_of(process.pid, holders, proc=proc) is None:
                user, command = _user(folder.stat().st_uid), _command(folder)
                found.append(Stranger(process.pid, process.uuid, process.mib, user, command))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def lease_of(pid: int, holders: Sequence[Holder], *, proc: Path = PROC) -> int | None:
    """Return the lease that a process belongs to, or None.

    Raises
    ------
    FileNotFoundError, ProcessLookupError
        The process is gone.
    """
    folder = proc / str(pid)
    family = [(pid, _started(folder)), *_parents(pid, proc)]
    for belongs in (
        _by_cgroup(folder, holders),
        _by_family(family, holders),
        _by_environment(folder, holders),
    ):
        for lease in belongs:
            return lease
    return None


def _by_cgroup(folder: Path, holders: Sequence[Holder]) -> Iterator[int]:
    paths = [line.split(":", 2)[2] for line in (folder / "cgroup").read_text().splitlines()]
    for holder in holders:
        if holder.cgroup and any(_inside(path, holder.cgroup) for path in paths):
            yield holder.lease


def _inside(path: str, leaf: str) -> bool:
    """Tell whether `path` is the leaf or below it; `leaf` may carry the hierarchy's mount point in front."""
    ancestors = [path, *(str(parent) for parent in Path(path).parents)]
    return any(leaf.endswith(ancestor) for ancestor in ancestors if ancestor != "/")


def _by_family(family: list[tuple[int, int]], holders: Sequence[Holder]) -> Iterator[int]:
    for holder in holders:
        if (holder.pid, holder.started) in family:
            yield holder.lease


def _by_environment(folder: Path, holders: Sequence[Holder]) -> Iterator[int]:
    try:
        variables = (folder / "environ").read_bytes().split(b"\0")
    except PermissionError:
        return
    uid = folder.stat().st_uid
    for holder in holders:
        if holder.uid == uid and LEASE_VARIABLE + str(holder.lease).encode() in variables:
            yield holder.lease


def _parents(pid: int, proc: Path) -> Iterator[tuple[int, int]]:
    """Yield (pid, start) of each ancestor; one that has just ended closes the chain."""
    try:
        while (pid := _parent(proc / str(pid))) > 1:
            yield pid, _started(proc / str(pid))
    except (FileNotFoundError, ProcessLookupError):
        return


def _parent(folder: Path) -> int:
    return int(_stat(folder)[1])


def _started(folder: Path) -> int:
    return int(_stat(folder)[19])


def _stat(folder: Path) -> list[str]:
    """Return the fields of ``stat`` after the command's name, which may itself hold blanks and brackets."""
    return (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()


def _command(folder: Path) -> str:
    """Return the program's name, never its arguments: they may hold secrets."""
    return (folder / "comm").read_text(errors="replace").strip()


def _user(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def holder_of(lease: int, pid: int, *, cgroup: str | None = None, proc: Path = PROC) -> Holder:
    """Describe a lease by its living first process.

    Raises
    ------
    FileNotFoundError, ProcessLookupError
        The process is gone.
    """
    folder = proc / str(pid)
    return Holder(lease, pid, _started(folder), os.stat(folder).st_uid, cgroup)
