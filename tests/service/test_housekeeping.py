"""What is kept no longer goes, also when the engine is away for a while."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpupool.engines.base import EngineError
from jupyter_gpupool.engines.local.files import DirectFiles
from jupyter_gpupool.service.housekeeping import Housekeeping
from jupyter_gpupool.service.progress import Progress
from jupyter_gpupool.service.snapshots import SnapshotStore


class Files(DirectFiles):
    away = True

    def remove(self, job: int) -> None:
        if self.away:
            raise EngineError("The launcher is away.")
        super().remove(job)


@pytest.fixture
def pruned() -> list[list[int]]:
    """What the ledger drops at each look."""
    return [[7, 8], []]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    for job in ("7", "8", "9"):
        (tmp_path / "jobs" / job / "out").mkdir(parents=True)
    return Files(tmp_path / "jobs")


@pytest.fixture
def chores(tmp_path: Path, files: Files, pruned: list[list[int]]) -> Housekeeping:
    days = SimpleNamespace(close=lambda zone, now: now)
    ledger = SimpleNamespace(jobs={}, days=days, prune=lambda now, retention: pruned.pop(0))
    policy = SimpleNamespace(zone=None, storage=SimpleNamespace(retention=1))
    controller: Any = SimpleNamespace(ledger=ledger, now=100, policy=policy)
    nobody: Any = None
    progress = Progress(tmp_path / "progress", files)
    for number in (7, 9):
        progress.send(SimpleNamespace(id=number, attempt=1), 0.5, {}, 1)  # type: ignore[arg-type]
    return Housekeeping(controller, files, progress, SnapshotStore(tmp_path, 1), nobody, nobody)


def test_files_that_cannot_be_removed_now_are_removed_at_the_next_look(
    chores: Housekeeping, files: Files, tmp_path: Path
) -> None:
    def left(folder: str) -> list[str]:
        return sorted(path.stem for path in (tmp_path / folder).iterdir())

    asyncio.run(chores.tidy())
    assert (left("jobs"), left("progress")) == (["7", "8", "9"], ["7", "9"])
    files.away = False
    asyncio.run(chores.tidy())
    assert (left("jobs"), left("progress")) == (["9"], ["9"])
