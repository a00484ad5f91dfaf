"""Reading what is being written."""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from pathlib import Path

import pytest

from jupyter_gpupool.engines.local.files import DirectFiles
from jupyter_gpupool.service import logs


@pytest.fixture
def files(tmp_path: Path) -> DirectFiles:
    (tmp_path / "1" / "out").mkdir(parents=True)
    (tmp_path / "1" / "log").write_bytes(b"0123456789")
    return DirectFiles(tmp_path)


@pytest.mark.parametrize(
    ("offset", "data", "following"),
    [(0, b"0123", 4), (8, b"89", 10), (10, b"", 10), (99, b"", 99), (-3, b"789", 10), (-99, b"0123", 4)],
)
def test_reading_from_an_offset(files: DirectFiles, offset: int, data: bytes, following: int) -> None:
    with closing(logs.Growing(files, 1, "log")) as file:
        assert file.read(offset, 4) == (data, following)


def test_a_file_that_is_not_there_yet_is_empty(files: DirectFiles, tmp_path: Path) -> None:
    with closing(logs.Growing(files, 2, "log")) as file:
        assert file.read(0) == (b"", 0)
        (tmp_path / "2" / "out").mkdir(parents=True)
        (tmp_path / "2" / "log").write_bytes(b"here")
        assert file.read(0) == (b"here", 4)


def test_it_stays_open_and_is_closed_in_the_end(files: DirectFiles, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with closing(logs.Growing(files, 1, "log")) as file:
        file.read(0, 4)
        (tmp_path / "1" / "log").rename(tmp_path / "1" / "moved")
        assert file.read(4) == (b"456789", 10)
    assert len(os.listdir("/proc/self/fd")) == before


def test_tail_replaces_what_is_no_text(files: DirectFiles, tmp_path: Path) -> None:
    (tmp_path / "1" / "log").write_bytes(b"\xff\xfeend")
    assert logs.tail(files, 1, "log", size=4) == "\ufffdend"


def test_following_ends_with_the_writer_and_loses_nothing() -> None:
    async def scenario() -> list[tuple[bytes, int, bool]]:
        written, over = bytearray(), False

        async def write() -> None:
            nonlocal over
            await asyncio.sleep(0.01)
            written.extend(b"one")
            await asyncio.sleep(0.05)
            written.extend(b"two")
            over = True

        task = asyncio.create_task(write())
        parts, offset, end = [], 0, False
        while not end:
            data, offset, end = await logs.follow(
                lambda at=offset: (bytes(written[at:]), len(written)), lambda: over, 5
            )
            parts.append((data, offset, end))
        await task
        return parts

    parts = asyncio.run(scenario())
    assert b"".join(data for data, _, _ in parts) == b"onetwo"
    assert parts[0] == (b"one", 3, False)


def test_following_gives_up_after_its_time() -> None:
    assert asyncio.run(logs.follow(lambda: (b"", 0), lambda: False, 0.02)) == (b"", 0, False)
