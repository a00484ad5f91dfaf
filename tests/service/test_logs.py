"""A job's folder is the job's: reading it follows no link and opens nothing but files."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from jupyter_gpupool.service import logs


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("secret")
    root = tmp_path / "jobs"
    (root / "1" / "out").mkdir(parents=True)
    (root / "1" / "log").write_bytes(b"0123456789")
    (root / "1" / "link").symlink_to(tmp_path / "secret")
    (root / "1" / "way").symlink_to(tmp_path)
    os.mkfifo(root / "1" / "fifo")
    return root


@pytest.mark.parametrize(
    "parts",
    [
        ("1", "link"),
        ("1", "way", "secret"),
        ("1", "fifo"),
        ("1", "out"),
        ("1", "missing"),
        ("..", "secret"),
        ("1", "../../secret"),
        ("1", "."),
        ("1", ""),
        ("1", "a\0b"),
        (),
    ],
)
def test_nothing_but_a_regular_file_is_opened(root: Path, parts: tuple[str, ...]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(logs.NoSuchFileError), logs.open_below(root, *parts):
        pass
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("offset", "data", "following"),
    [(0, b"0123", 4), (8, b"89", 10), (10, b"", 10), (99, b"", 99), (-3, b"789", 10), (-99, b"0123", 4)],
)
def test_read_at(root: Path, offset: int, data: bytes, following: int) -> None:
    assert logs.read_at(root, ("1", "log"), offset, 4) == (data, following)


def test_a_log_that_is_not_there_yet_is_empty(root: Path) -> None:
    assert logs.read_at(root, ("2", "log"), 0) == (b"", 0)


def test_tail_replaces_what_is_no_text(root: Path) -> None:
    (root / "1" / "log").write_bytes(b"\xff\xfeend")
    assert logs.tail(root, ("1", "log"), 4) == "\ufffdend"


def test_files_are_listed_without_links_and_folders(root: Path) -> None:
    assert [file.name for file in logs.list_files(root, "1")] == ["log"]
    assert logs.list_files(root, "7") == []


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
