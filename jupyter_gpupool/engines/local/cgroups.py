"""Control groups: a subtree of our own, and in it a leaf for each job.

Owns: finding the hierarchies (v2, hybrid, v1) in the mount table, making, limiting, killing and
removing leaves. Never: a fixed mount point, a leaf that another program made.

The leaves that *hold* a job live in one hierarchy (v2 where there is one, else the v1 freezer, else
any v1 hierarchy), as near to its root as we may write, so that ending the group of a terminal or a
lab does not reach them. Limits of a v1 controller live below the group we were started in, so that
an administrator's limit keeps holding above ours.
"""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from jupyter_gpupool.engines.base import Survival

LAUNCHER, SERVICE = "launcher", "service"
PERIOD_US = 100_000
MIB = 1 << 20
_V1_ORDER = ("freezer", "pids", "cpu", "memory")


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One mounted hierarchy: `root` of it is mounted at `mount`; `own` is the group this process is in."""

    mount: Path
    root: str
    version: int
    controllers: frozenset[str]
    own: str

    @property
    def here(self) -> Path:
        """The directory of this process's own group."""
        return self.mount / self.own.removeprefix(self.root.rstrip("/")).lstrip("/")

    def name_of(self, directory: Path) -> str:
        """`directory` as ``/proc/<pid>/cgroup`` names it."""
        return f"{self.root.rstrip('/')}/{directory.relative_to(self.mount)}"

    def highest(self) -> Path | None:
        """The group nearest to the root that we may add groups to and move our processes under."""
        for directory in [*reversed(self.here.relative_to(self.mount).parents), None]:
            candidate = self.here if directory is None else self.mount / directory
            if os.access(candidate, os.W_OK) and os.access(candidate / "cgroup.procs", os.W_OK):
                return candidate
        return None


def hierarchies(mountinfo: str, membership: str) -> list[Hierarchy]:
    """Read the hierarchies from the texts of ``/proc/self/mountinfo`` and ``/proc/self/cgroup``."""
    own: dict[str, str] = {}
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            own[name] = path
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, _, options) = before.split(), after.split(" ", 2)
        mount = Path(fields[4].replace("\\040", " "))
        if kind == "cgroup2" and "" in own:
            found.append(Hierarchy(mount, fields[3], 2, frozenset(), own[""]))
        elif kind == "cgroup":
            names = frozenset(name for name in options.split(",") if name in own)
            if names:
                found.append(Hierarchy(mount, fields[3], 1, names, own[min(names)]))
    return found


@dataclass(frozen=True, slots=True)
class Leaf:
    """The group of one job: `held` is its directory, `limits` those of the v1 controllers that cap it.

    `name` is the leaf as ``/proc/<pid>/cgroup`` of the job's processes shows it.
    """

    held: Path
    limits: tuple[Path, ...]
    name: str

    def as_json(self) -> dict[str, object]:
        """The leaf for ``runner.json``."""
        return {"held": str(self.held), "limits": [str(path) for path in self.limits], "name": self.name}

    @classmethod
    def from_json(cls, value: dict[str, object]) -> Leaf:
        """The leaf from ``runner.json``."""
        limits = value["limits"]
        assert isinstance(limits, list)
        return cls(Path(str(value["held"])), tuple(Path(path) for path in limits), str(value["name"]))

    @property
    def _directories(self) -> tuple[Path, ...]:
        return (self.held, *self.limits)

    def enter(self) -> None:
        """Move this process into the leaf."""
        for directory in self._directories:
            _write(directory / "cgroup.procs", "0")

    def limit(self, cpus_milli: int, memory_mib: int) -> None:
        """Cap CPU and memory in whichever of the leaf's directories can."""
        for directory in self._directories:
            if memory_mib:
                size = str(memory_mib * MIB)
                for file in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.max"):
                    _try_write(directory / file, size)
                _try_write(directory / "memory.swap.max", "0")
            if cpus_milli:
                quota = max(1000, cpus_milli * PERIOD_US // 1000)
                _try_write(directory / "cpu.cfs_quota_us", str(quota))
                _try_write(directory / "cpu.max", f"{quota} {PERIOD_US}")

    def pids(self) -> set[int]:
        """Every process in the leaf and in groups that the job made below it."""
        found: set[int] = set()
        for directory in _walk(self.held):
            with suppress(OSError):
                found.update(map(int, (directory / "cgroup.procs").read_text().split()))
        return found

    def kill(self) -> None:
        """SIGKILL to every process; to be repeated until `pids()` is empty.

        With ``cgroup.kill`` once is enough; else the leaf is frozen, so that nothing forks away
        from the list while it is worked through.
        """
        if _try_write(self.held / "cgroup.kill", "1"):
            return
        self._freeze("FROZEN", "1")
        try:
            for pid in self.pids():
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        finally:
            self._freeze("THAWED", "0")

    def _freeze(self, v1: str, v2: str) -> None:
        _try_write(self.held / "freezer.state", v1)
        _try_write(self.held / "cgroup.freeze", v2)

    def peak_mib(self) -> int | None:
        """The most memory the leaf ever held, in MiB rounded up; None where no controller counts it."""
        for directory in self._directories:
            for file in ("memory.peak", "memory.max_usage_in_bytes"):
                with suppress(OSError, ValueError):
                    return -(-int((directory / file).read_text()) // MIB)
        return None

    def out_of_memory(self) -> bool:
        """Whether the kernel killed a process of the leaf for want of memory."""
        for directory in self._directories:
            for file in ("memory.events", "memory.oom_control"):
                with suppress(OSError):
                    for line in (directory / file).read_text().splitlines():
                        if line.startswith("oom_kill ") and int(line.split()[1]) > 0:
                            return True
        return False

    def remove(self) -> None:
        """Remove the leaf and what the job made below it; a group still in use stays."""
        for directory in self._directories:
            for below in reversed(list(_walk(directory))):
                with suppress(OSError):
                    below.rmdir()


@dataclass(frozen=True, slots=True)
class Subtree:
    """The groups of one pool: `held` for its leaves, None where no hierarchy can be written."""

    hierarchy: Hierarchy | None = None
    held: Path | None = None
    limits: tuple[Path, ...] = ()

    @classmethod
    def at(cls, home: Path, mountinfo: str | None = None, membership: str | None = None) -> Subtree:
        """Find where the pool of `home` has or may make its groups; makes nothing yet."""
        mountinfo = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
        membership = Path("/proc/self/cgroup").read_text() if membership is None else membership
        known = hierarchies(mountinfo, membership)
        name = f"gpupool-{os.geteuid()}-{hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:12]}"
        holder = None
        for hierarchy in sorted(known, key=_preference):
            base = hierarchy.highest()
            if base and _can_hold(base, name):
                holder = hierarchy
                break
        if holder is None or base is None:
            return cls()
        limits = tuple(
            _outside(hierarchy.here, name) / name
            for hierarchy in known
            if hierarchy.version == 1
            and hierarchy is not holder
            and hierarchy.controllers & {"cpu", "memory"}
            and os.access(hierarchy.here, os.W_OK)
        )
        return cls(holder, base / name, limits)

    def enter(self, leaf: str) -> bool:
        """Move this process into `leaf` of the holding hierarchy; False where that cannot be."""
        if self.held is None:
            return False
        with suppress(OSError):
            self._make()
            (self.held / leaf).mkdir(exist_ok=True)
            _write(self.held / leaf / "cgroup.procs", "0")
            return True
        return False

    def make_leaf(self, name: str) -> Leaf | None:
        """Make the leaf `name`; None where no hierarchy can be written."""
        if self.held is None or self.hierarchy is None:
            return None
        held = self.held / name
        try:
            if not self.held.exists():
                self._make()
            held.mkdir()
        except OSError:
            return None
        limits = []
        for parent in self.limits:
            with suppress(OSError):
                (parent / name).mkdir(parents=True)
                limits.append(parent / name)
        return Leaf(held, tuple(limits), self.hierarchy.name_of(held))

    def _make(self) -> None:
        """Make the group above the leaves, and let them have the controllers that there are."""
        assert self.held is not None
        assert self.hierarchy is not None
        self.held.mkdir(exist_ok=True)
        if self.hierarchy.version == 2:
            _pass_on_controllers(self.held.parent)
            _pass_on_controllers(self.held)

    def sweep(self, keep: frozenset[str] = frozenset()) -> None:
        """Remove every group of the subtree that is empty but those in `keep`; the subtree too, if it can."""
        for directory in (self.held, *self.limits):
            for below in reversed(list(_walk(directory))) if directory else ():
                if not keep.intersection(below.parts):
                    with suppress(OSError):
                        below.rmdir()

    def leave(self, leaf: str) -> None:
        """Move this process out of `leaf`, and remove that and the subtree if they are empty now."""
        if self.held:
            _try_write(self.held.parent / "cgroup.procs", "0")
            for directory in (self.held / leaf, self.held):
                with suppress(OSError):
                    directory.rmdir()

    def survival(self) -> Survival:
        """Say what a job's life depends on here."""
        if self.hierarchy is None or self.held is None:
            return Survival(
                whole_tree=False,
                sentence="No control group can be written here: jobs end when the group or container in "
                "which the pool was started is ended, and of a job only the descendants of its runner can be "
                "ended for certain.",
            )
        origin = _outside(self.hierarchy.here, self.held.name)
        if self.held.parent == origin != self.hierarchy.mount:
            return Survival(
                whole_tree=True,
                sentence=f"Jobs end when the control group {self.hierarchy.name_of(origin)}, in which the "
                "pool was started, is ended; start the pool from a service of its own to avoid that.",
            )
        return Survival(
            whole_tree=True,
            sentence="Jobs live in control groups of their own: they outlive the lab, the terminal and the "
            "service, and their whole process tree can be ended.",
        )


def leave_own_cgroup(home: Path) -> bool:
    """Move this process out of the group it was started in, into the pool's own subtree.

    Returns False where no hierarchy can be written: the process then ends with its group.
    """
    return Subtree.at(home).enter(SERVICE)


def return_own_cgroup(home: Path) -> None:
    """Undo `leave_own_cgroup` at the end of the process, so that no empty group is left."""
    Subtree.at(home).leave(SERVICE)


def _preference(hierarchy: Hierarchy) -> tuple[int, int]:
    ranks = [_V1_ORDER.index(name) for name in hierarchy.controllers if name in _V1_ORDER]
    return (-hierarchy.version, min(ranks, default=len(_V1_ORDER)))


def _can_hold(base: Path, name: str) -> bool:
    """Whether a group below `base` can be made: a mount may be writable by its bits and still refuse."""
    directory = base / name
    try:
        directory.mkdir()
    except FileExistsError:
        return (directory / "cgroup.procs").exists()
    except OSError:
        return False
    try:
        return (directory / "cgroup.procs").exists()
    finally:
        with suppress(OSError):
            directory.rmdir()


def _outside(here: Path, name: str) -> Path:
    """`here`, or the group above our own subtree when we are inside it already."""
    parts = here.parts
    return Path(*parts[: parts.index(name)]) if name in parts else here


def _pass_on_controllers(directory: Path) -> None:
    for controller in ("cpu", "memory"):
        _try_write(directory / "cgroup.subtree_control", f"+{controller}")


def _walk(directory: Path) -> Iterator[Path]:
    """`directory` and every group below it, the upper before the lower."""
    for path, _, _ in os.walk(directory):
        yield Path(path)


def _write(file: Path, text: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _try_write(file: Path, text: str) -> bool:
    try:
        _write(file, text)
    except OSError:
        return False
    return True
