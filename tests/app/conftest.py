"""A shell for the command line, in process over a fake service, and as a subprocess over a real one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from jupyter_gpupool.app import main
from tests.faces.fake import fake  # noqa: F401  (a fixture)
from tests.faces.real import end_jobs, environment, real_pool


class Said(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Run a command in this process."""

    def run(*words: str) -> Said:
        code = main(words)
        return Said(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def pool() -> Iterator[Path]:
    with real_pool() as home:
        yield home


@pytest.fixture
def home(pool: Path) -> Iterator[Path]:
    """The home of a real pool that all tests share; none leaves a job in it."""
    yield pool
    end_jobs(pool)


@pytest.fixture
def terminal(home: Path, tmp_path: Path) -> Callable[..., Said]:
    """Run a command as a process of its own, in a folder of its own, over the real service."""

    def run(*words: str, code: int | None = 0) -> Said:
        command = [sys.executable, "-m", "jupyter_gpupool.app", *words]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment(home), capture_output=True, text=True, timeout=100
        )
        said = Said(done.returncode, done.stdout, done.stderr)
        assert code is None or said.code == code, said
        return said

    return run
