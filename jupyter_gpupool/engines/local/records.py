"""What an attempt leaves on disk, so that whoever is killed, the next launcher knows what happened.

Owns: the attempt's folder, the order and the form in which its files are written, and the index
``run/attempts`` of those not yet forgotten. Never: a process, a decision.

============  =====================  ==========================================================
file          written by             meaning
============  =====================  ==========================================================
spec.json     launcher               what was asked
runner.json   launcher, fsynced      a runner was made and is about to be let go
exit.json     runner, then launcher  all blank: not let go; a new line: running; else how it ended
stop          launcher               it was asked to end: why, and when it will be killed
log           the job itself         its standard output and error
============  =====================  ==========================================================

With an account to run as, the folder is the launcher's and the account's group may pass through it:
all is the launcher's alone but ``stop``, which the group may read, and the log, which is the account's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from jupyter_gpupool.engines.base import Ended, StopCause, WorkSpec
from jupyter_gpupool.engines.local.cgroups import Leaf
from jupyter_gpupool.engines.local.folders import CODE, make_folders
from jupyter_gpupool.engines.local.identity import Account
from jupyter_gpupool.engines.local.protocol import ProtocolError, ended_from_json, spec_from_json

T = TypeVar("T")

_RESERVED = 4096
_OURS = os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass(frozen=True, slots=True)
class RunnerRecord:
    """A runner, named so that no later process can be mistaken for it.

    `clock` is the monotonic time of the start, comparable within one boot; `started` is Unix time.
    """

    pid: int
    starttime: int
    boot_id: str
    clock: float
    started: float
    leaf: Leaf | None


@dataclass(frozen=True, slots=True)
class StopRecord:
    """The attempt was asked to end: SIGKILL follows at `kill_at`, in monotonic time."""

    cause: StopCause
    kill_at: float


@dataclass(frozen=True, slots=True)
class ExitRecord:
    """What the runner saw of the end. `cause` is "start" when the user's program never ran."""

    exit_code: int | None
    signal: int | None
    cause: str
    message: str
    peak_mib: int | None
    ended: float
    tree_gone: bool


@dataclass(frozen=True, slots=True)
class Records:
    """The files of one attempt, in `folder`."""

    folder: Path

    @classmethod
    def of(cls, spec: WorkSpec) -> Records:
        """The records of the attempt that `spec` describes."""
        return cls(Path(spec.folder) / str(spec.attempt))

    @property
    def code(self) -> Path:
        """Where the snapshot is unpacked."""
        return self.folder / CODE

    def prepare(self, spec: WorkSpec, account: Account | None = None) -> None:
        """Make the folders and ``spec.json``."""
        make_folders(Path(spec.folder), self.folder, account)
        self.write_spec(spec)

    def write_spec(self, spec: WorkSpec) -> None:
        """Record what was asked."""
        self._replace("spec.json", asdict(spec))

    def open_spec(self) -> int:
        """Descriptor to read the specification from."""
        return os.open(self.folder / "spec.json", os.O_RDONLY | _OURS)

    def open_log(self, account: Account | None = None) -> int:
        """Descriptor of the log, to append to; the account's own, so that ``/dev/stdout`` can be opened."""
        descriptor = os.open(self.folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT | _OURS, 0o600)
        if account:
            os.fchown(descriptor, account.uid, account.gid)
        return descriptor

    def open_exit(self) -> int:
        """Descriptor of a blank ``exit.json``, whose room on disk is taken already."""
        descriptor = os.open(self.folder / "exit.json", os.O_WRONLY | os.O_TRUNC | os.O_CREAT | _OURS, 0o600)
        os.write(descriptor, b" " * _RESERVED)
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor

    def write_runner(self, record: RunnerRecord) -> None:
        """Record the runner for good: on disk before this returns."""
        value = {**asdict(record), "leaf": record.leaf.as_json() if record.leaf else None}
        self._replace("runner.json", value, sync=True)

    def write_stop(self, record: StopRecord) -> None:
        """Record that the attempt was asked to end; the file is also what the job's own code looks for."""
        self._replace("stop", asdict(record), for_the_job=True)

    def write_end(self, end: Ended) -> None:
        """Put the whole truth in place of what the runner reported."""
        self._replace("exit.json", asdict(end))

    def spec(self) -> WorkSpec | None:
        """What was asked, or None."""
        return self._read("spec.json", spec_from_json)

    def runner(self) -> RunnerRecord | None:
        """The runner that was made, or None."""
        return self._read("runner.json", _runner_record)

    def stop(self) -> StopRecord | None:
        """The request to end, or None."""
        return self._read("stop", lambda value: StopRecord(**value))

    def began(self) -> bool:
        """Whether the user's program may have run: true unless ``exit.json`` is still all blank."""
        try:
            return not (self.folder / "exit.json").read_bytes().startswith(b" ")
        except OSError:
            return True

    def end(self) -> ExitRecord | Ended | None:
        """How the attempt ended: `Ended` once a launcher has settled it, None while nobody has said."""
        return self._read("exit.json", _end_record)

    def _read(self, name: str, build: Callable[[dict[str, Any]], T]) -> T | None:
        """What `build` makes of the file; None for one that is not there, or that is not ours."""
        try:
            descriptor = os.open(self.folder / name, os.O_RDONLY | _OURS)
            with os.fdopen(descriptor, "rb") as file:
                value = json.load(file)
            return build(value) if isinstance(value, dict) else None
        except (OSError, ValueError, TypeError, KeyError, ProtocolError):
            return None

    def _replace(
        self, name: str, value: dict[str, Any], *, sync: bool = False, for_the_job: bool = False
    ) -> None:
        beside = self.folder / f".{name}.new"
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _OURS, 0o600)
        try:
            with os.fdopen(descriptor, "w") as file:
                if for_the_job:
                    _let_group_read(file.fileno(), self.folder)
                json.dump(value, file)
                file.flush()
                if sync:
                    os.fsync(file.fileno())
            os.replace(beside, self.folder / name)
            if sync:
                _sync_directory(self.folder)
        except OSError:
            with suppress(OSError):
                beside.unlink()
            raise


def mark_begun(exit_record: int) -> None:
    """Write into a blank ``exit.json`` that the runner was let go."""
    os.write(exit_record, b"\n")


def report_exit(exit_record: int, record: ExitRecord) -> None:
    """Write how it ended, for good, and even when the disk is full by now."""
    os.write(exit_record, json.dumps(asdict(record)).encode())
    os.fsync(exit_record)


class Index:
    """``run/attempts``: one link to the folder of each attempt that is not forgotten."""

    def __init__(self, home: Path) -> None:
        self._directory = home / "run" / "attempts"
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def add(self, spec: WorkSpec) -> None:
        """Remember the attempt."""
        with suppress(FileExistsError):
            self._link(spec).symlink_to(Records.of(spec).folder)

    def drop(self, spec: WorkSpec) -> None:
        """Forget the attempt."""
        self._link(spec).unlink(missing_ok=True)

    def read(self) -> Iterator[tuple[WorkSpec, Records]]:
        """Yield every attempt that is remembered; links that lead nowhere are removed."""
        for link in sorted(self._directory.iterdir()):
            records = Records(link.readlink())
            spec = records.spec()
            if spec is None or Records.of(spec) != records:
                link.unlink()
            else:
                yield spec, records

    def _link(self, spec: WorkSpec) -> Path:
        return self._directory / f"{spec.job}.{spec.attempt}"


def _runner_record(value: dict[str, Any]) -> RunnerRecord:
    return RunnerRecord(**{**value, "leaf": Leaf.from_json(value["leaf"]) if value["leaf"] else None})


def _end_record(value: dict[str, Any]) -> ExitRecord | Ended:
    return ended_from_json(value) if "key" in value else ExitRecord(**value)


def _let_group_read(descriptor: int, folder: Path) -> None:
    group = folder.stat().st_gid
    if os.fstat(descriptor).st_gid != group:
        os.fchown(descriptor, -1, group)
    os.fchmod(descriptor, 0o640)


def _sync_directory(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
