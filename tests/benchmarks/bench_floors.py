"""The machine's own floor: a durable commit, a bare process."""

from __future__ import annotations

import sqlite3
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.harness import NATIVE_PYTHON, Row, median, seconds


@dataclass(frozen=True)
class Floors:
    """Medians in milliseconds."""

    commit_ms: float
    process_ms: float

    def rows(self) -> list[Row]:
        return [
            Row("floor: one SQLite commit, WAL, synchronous=FULL", self.commit_ms, "ms"),
            Row(f"floor: {NATIVE_PYTHON} -c pass", self.process_ms, "ms"),
        ]


def run() -> Floors:
    with tempfile.TemporaryDirectory(prefix="gpupool-bench-") as folder:
        database = sqlite3.connect(Path(folder) / "floor.sqlite", isolation_level=None)
        database.execute("pragma journal_mode=wal")
        database.execute("pragma synchronous=full")
        database.execute("create table t (v integer)")
        commits = [seconds(database.execute, "insert into t values (1)") for _ in range(200)]
        database.close()
    processes = [seconds(subprocess.run, [NATIVE_PYTHON, "-c", "pass"]) for _ in range(20)]
    return Floors(median(commits) * 1e3, median(processes) * 1e3)
