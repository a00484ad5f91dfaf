"""A job's folder is the job's: reading it follows no link and opens nothing but files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_gpupool.engines.base import NoSuchFileError
from jupyter_gpupool.engines.local.files import DirectFiles


@pytest.fixture
def files(tmp_path: Path) -> DirectFiles:
    (tmp_path / "secret").write_text("secret")
    folder = tmp_path / "jobs" / "1"
    (folder / "out").mkdir(parents=True)
    (folder / "log").write_bytes(b"0123456789")
    (folder / "out" / "a").write_bytes(b"12")
    (folder / "out" / "link").symlink_to(tmp_path / "secret")
    (folder / "way").symlink_to(tmp_path)
    (tmp_path / "jobs" / "2").symlink_to(tmp_path)
    os.mkfifo(folder / "out" / "fifo")
    return DirectFiles(tmp_path / "jobs")


def test_a_file_is_opened(files: DirectFiles) -> None:
    file = files.open(1, "out", "a")
    assert os.read(file, 9) == b"12"
    os.close(file)


@pytest.mark.parametrize(
    ("job", "parts"),
    [
        (1, ("out", "link")),
        (1, ("way", "secret")),
        (2, ("secret",)),
        (1, ("out", "fifo")),
        (1, ("out",)),
        (1, ("missing",)),
        (1, ("..", "secret")),
        (1, ("../../secret",)),
        (1, (".",)),
        (1, ("",)),
        (1, ("a\0b",)),
        (1, ("\ud800",)),
        (1, ()),
        (7, ("log",)),
    ],
)
def test_nothing_but_a_regular_file_is_opened(files: DirectFiles, job: int, parts: tuple[str, ...]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(NoSuchFileError):
        files.open(job, *parts)
    assert len(os.listdir("/proc/self/fd")) == before


def test_files_are_listed_without_links_and_folders(files: DirectFiles) -> None:
    assert [(file.name, file.size) for file in files.list(1, "out")] == [("a", 2)]
    assert files.list(7) == files.list(1, "way") == files.list(1, "..") == []


def test_a_job_is_removed_and_nothing_that_it_links_to(files: DirectFiles, tmp_path: Path) -> None:
    files.remove(1)
    files.remove(1)
    assert not (tmp_path / "jobs" / "1").exists()
    assert (tmp_path / "secret").exists()
