"""A disk that is full: what ran is told as it was, what cannot start says so, and space heals it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import pytest_asyncio

pytestmark = pytest.mark.asyncio


@pytest.fixture
def small_disk(tmp_path: Path, require) -> Path:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=False)
    if mounted.returncode:
        require("a small tmpfs cannot be mounted")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest_asyncio.fixture
async def cramped(small_disk, make_bench):
    async with make_bench(small_disk) as bench:
        yield bench


async def test_the_outcome_of_a_job_that_fills_the_disk(cramped):
    fill = cramped.spec("sh", "-c", "cat /dev/zero > fill; exit 7")
    end = await cramped.run(fill)
    assert (end.exit_code, end.cause, end.tree_gone) == (7, "exit", True)
    assert end.message == "The disk of the job's log was full when the job ended."
    refused = await cramped.run(cramped.spec("true"))
    assert refused.cause == "start"
    assert "no space left on device" in refused.message
    cramped.kill(cramped.launcher_pid())
    assert (await cramped.settled(fill.key)).exit_code == 7
    (cramped.home / "fill").unlink()
    end = await cramped.run(cramped.spec("sh", "-c", "exit 3"))
    assert (end.exit_code, end.message) == (3, "")
