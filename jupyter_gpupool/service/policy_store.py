"""The policy in force: the administrator's file, while it is good.

Owns: reading the file when it changes, keeping the last good policy when it turns bad, and the history
of what was in force. The file is the truth; a pool without one has the built-in policy. Never: what a
policy means.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from jupyter_gpupool.devices.base import Pool
from jupyter_gpupool.policy.advice import warnings
from jupyter_gpupool.policy.builtin import builtin_policy
from jupyter_gpupool.policy.load import check_against, load_policy
from jupyter_gpupool.policy.model import Policy
from jupyter_gpupool.policy.problems import PolicyError, Problem


@dataclass(frozen=True, slots=True)
class PastPolicy:
    """One policy that was in force: since when (Unix seconds), and its file's name in the history."""

    name: str
    since: int


class PolicyStore:
    """The policy of one pool.

    Parameters
    ----------
    unsafe
        Says what would make a good policy unsafe where this pool is.

    Attributes
    ----------
    policy
        What is in force.
    text
        Its YAML.
    error
        What is wrong with the file now; None when it is good or absent.
    usable
        False when there has never been a good policy: then nothing new may start.
    """

    def __init__(
        self,
        file: Path,
        history: Path,
        pool: Pool,
        unsafe: Callable[[Policy], Sequence[Problem]] = lambda policy: (),
    ):
        self.file = file
        self._unsafe = unsafe
        self._history = history
        self._pool = pool
        self._cards = pool.cards()
        self._seen: tuple[int, int, int] | None = None
        self._looked = False
        self.error: str | None = None
        self.usable = True
        self.text = builtin_policy(self._cards, pool.nodes())
        self.policy = load_policy(self.text, source="built-in policy")

    def refresh(self, now: int) -> bool:
        """Look at the file; return whether another policy came into force.

        A bad file changes nothing but `error`. When the service starts on a bad file, the newest good
        policy of the history stays in force.
        """
        found = _stamp(self.file)
        if self._looked and found == self._seen:
            return False
        starting, self._looked, self._seen = not self._looked, True, found
        if found is None:
            self.error = None
            return self._enforce(builtin_policy(self._cards, self._pool.nodes()), now, starting=starting)
        try:
            return self._enforce(self.file.read_text(encoding="utf-8"), now, starting=starting)
        except (PolicyError, OSError, UnicodeDecodeError) as error:
            self.error = str(error) if isinstance(error, PolicyError) else f"{self.file}: {error}"
            return starting and self._fall_back()

    def check(self, text: str, source: str | None = None) -> Policy:
        """Return the policy that `text` describes, if it suits this pool's cards.

        Parameters
        ----------
        source
            The name in messages of what was read; None = the administrator's file.

        Raises
        ------
        PolicyError
            With every problem found.
        """
        source = source or self.file.name
        policy = load_policy(text, source=source)
        if problems := [*check_against(policy, self._cards), *self._unsafe(policy)]:
            raise PolicyError(problems, source)
        return policy

    def write(self, text: str) -> None:
        """Put `text`, which must have passed `check`, in the place of the file."""
        _replace(self.file, text)

    @property
    def since(self) -> int | None:
        """When the policy in force came into force."""
        newest = next(iter(self.past()), None)
        return newest.since if newest else None

    def warnings(self, policy: Policy) -> list[str]:
        """Return what an administrator should know about a good policy on this pool."""
        nodes = self._pool.nodes()
        totals = {
            "gpu_milli": 1000 * len(self._cards),
            "cpus_milli": sum(node.cpus_milli for node in nodes),
            "memory_mib": sum(node.memory_mib for node in nodes),
        }
        for card in self._cards:
            key = f"gpu_milli.{card.model}"
            totals[key] = totals.get(key, 0) + 1000
        return warnings(policy, totals)

    def past(self) -> list[PastPolicy]:
        """Return the policies that were in force, newest first."""
        names = sorted((file.name for file in self._history.glob("*.yaml")), reverse=True)
        return [PastPolicy(name, int(datetime.strptime(name[:16], _TIME).timestamp())) for name in names]

    def past_text(self, name: str) -> str | None:
        """Return the YAML of a policy of the history; None when it has no such name."""
        if name not in (past.name for past in self.past()):
            return None
        return (self._history / name).read_text(encoding="utf-8")

    def _enforce(self, text: str, now: int, *, starting: bool) -> bool:
        policy = self.check(text)
        changed = starting or not self.usable or text != self.text
        self.policy, self.text, self.error, self.usable = policy, text, None, True
        if changed:
            self._record(text, now)
        return changed

    def _fall_back(self) -> bool:
        for past in self.past():
            text = self.past_text(past.name) or ""
            try:
                self.policy, self.text = self.check(text), text
            except PolicyError:
                continue
            return True
        self.usable = False
        return True

    def _record(self, text: str, now: int) -> None:
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        newest = next(iter(self.past()), None)
        if newest is None or not newest.name.endswith(f"-{digest}.yaml"):
            self._history.mkdir(mode=0o700, parents=True, exist_ok=True)
            moment = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
            _replace(self._history / f"{moment}-{digest}.yaml", text)


_TIME = "%Y%m%dT%H%M%S%z"


def _stamp(file: Path) -> tuple[int, int, int] | None:
    """Return what changes when the file does; None when it is not there."""
    try:
        info = file.stat()
    except FileNotFoundError:
        return None
    return info.st_mtime_ns, info.st_size, info.st_ino


def _replace(file: Path, text: str) -> None:
    """Write a file so that it is there whole, or as it was."""
    descriptor, part = tempfile.mkstemp(prefix=f".{file.name}-", dir=file.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        os.replace(part, file)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
