"""What every engine promises: the words in which work is handed over and its fate reported.

Owns: the values `WorkSpec`, `Started`, `Ended`, `Survival`, the `Engine` protocol and
`EngineError`. Never: a decision on who runs next, or what an end means for the job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

EndCause = Literal["exit", "cancel", "limit", "stop", "lost", "reboot", "start"]
StopCause = Literal["cancel", "limit", "stop"]

STOP_CAUSES: tuple[StopCause, ...] = get_args(StopCause)


class EngineError(Exception):
    """The engine could not do what was asked; `str()` is one clear sentence."""


class UnansweredError(EngineError):
    """The engine did not answer in time: what was asked may have been done, or be done yet."""


@dataclass(frozen=True, slots=True)
class WorkSpec:
    """One attempt of one job, complete: an engine adds nothing and asks nothing.

    Parameters
    ----------
    key : str
        ``"<job>/<attempt>"``; an engine never runs the same key twice.
    argv, environment, workdir
        What to execute, its whole environment, and where. Paths are absolute; a bare
        program name is looked up on the environment's ``PATH``.
    snapshot, snapshot_sha256 : str or None
        Path of the uncompressed tar and its digest; unpacked into ``<folder>/<attempt>/code``.
    folder : str
        The job's folder, ``jobs/<id>``.
    limit_s, grace_s : int
        Seconds: SIGTERM at ``limit_s - grace_s`` after the start, SIGKILL at ``limit_s``.
    cpus_milli, memory_mib : int
        Caps where a controller allows; 0 = no cap.
    kind, owner, entry
        Carried along for people who read ``spec.json``; never interpreted.
    user : str or None
        The system account to run as; None = the engine's own.
    """

    key: str
    job: int
    attempt: int
    kind: str
    argv: tuple[str, ...]
    environment: dict[str, str]
    workdir: str
    snapshot: str | None
    snapshot_sha256: str | None
    folder: str
    limit_s: int
    grace_s: int
    cpus_milli: int
    memory_mib: int
    owner: str
    entry: dict[str, Any] = field(default_factory=dict)
    user: str | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """An attempt that runs.

    `pid` is its runner's (0: the runner could not be made; the `Ended` follows at once),
    `started` Unix seconds, `cgroup` the leaf as it reads in ``/proc/<pid>/cgroup`` of the
    job's processes, `whole_tree` whether every process of the job can be ended for certain.
    """

    key: str
    pid: int
    started: float
    cgroup: str | None
    whole_tree: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt that is over.

    `cause` says what ended it: ``exit`` by itself; ``cancel``, ``limit`` or ``stop`` after
    having been asked (`exit_code` 0 then still means it finished its work); ``lost`` its
    runner was killed; ``reboot`` the machine restarted; ``start`` it never began, `message`
    says why; of an ``exit`` it says what the log cannot: that its disk is full. `tree_gone` is
    False while a process of it may be left; the same end is then reported again, with True,
    when the last one is gone.
    """

    key: str
    exit_code: int | None
    signal: int | None
    cause: EndCause
    message: str
    peak_mib: int | None
    oom: bool
    ended: float
    tree_gone: bool


@dataclass(frozen=True, slots=True)
class Survival:
    """What a job's life depends on here, in one sentence, and whether its whole tree can be ended."""

    whole_tree: bool
    sentence: str


OnEvent = Callable[[Ended], None]


class NoSuchFileError(Exception):
    """The path is not a regular file of the job."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One regular file: name, bytes, and when it was last written (Unix seconds)."""

    name: str
    size: int
    modified: float


class JobFiles(Protocol):
    """The files of jobs, whoever's account they belong to; no link is ever followed. Calls block."""

    def open(self, job: int, *parts: str) -> int:
        """Return a descriptor to read the regular file `parts` of the job's folder.

        Raises
        ------
        NoSuchFileError
            It is missing, a link, a folder, a device or another account's, or a part is not a plain name.
        EngineError
            The engine cannot be asked now.
        """

    def list(self, job: int, *parts: str) -> list[FileEntry]:
        """Return the regular files in the folder `parts` of the job's; none where there is no such folder.

        Raises
        ------
        EngineError
            The engine cannot be asked now.
        """

    def newest(self, job: int, *parts: str) -> float | None:
        """Return when a regular file in the folder `parts`, or below it, was last written; None without one.

        Raises
        ------
        EngineError
            The engine cannot be asked now, or there are more files than it can look at in a while.
        """

    def remove(self, job: int) -> None:
        """Delete the job's folder; one that is not there is no error.

        Raises
        ------
        EngineError
            The engine cannot be asked now.
        """


class Engine(Protocol):
    """A place where work runs."""

    @property
    def files(self) -> JobFiles:
        """What jobs write there."""

    async def open(self, on_event: OnEvent) -> None:
        """Connect. `on_event` is called in the event loop for each end, possibly more than once per key.

        Raises
        ------
        EngineError
            The place cannot be reached.
        """

    async def close(self) -> None:
        """Disconnect; what runs goes on."""

    async def start(self, spec: WorkSpec) -> Started:
        """Run `spec`; the same key again returns the same `Started`.

        Raises
        ------
        EngineError
            Nothing was started, or the key has run and was forgotten; but see `UnansweredError`.
        """

    async def stop(self, key: str, *, cause: StopCause, grace_s: int) -> None:
        """Ask the job to end now and kill it after `grace_s` seconds; an unknown or ended key is no error."""

    async def extend(self, key: str, limit_s: int) -> bool:
        """Let an attempt run for `limit_s` seconds in all; False if it is over, or was asked to end."""

    async def list(self) -> list[Started | Ended]:
        """Everything that was started and is not forgotten."""

    async def forget(self, key: str) -> None:
        """Drop an end that was recorded elsewhere; an unknown key is no error."""

    async def left(self, key: str) -> Sequence[int]:
        """The processes of an attempt that are left, whether or not `list` tells of it.

        Raises
        ------
        EngineError
            The engine cannot look now.
        """
