"""A job's folder is the job's: reading it follows no link and opens nothing but files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_gpupool.engines.base import EngineError, NoSuchFileError
from jupyter_gpupool.engines.local import files as module
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


def test_the_newest_file_is_found_however_deep(files: DirectFiles, tmp_path: Path) -> None:
    checkpoint = tmp_path / "jobs" / "1" / "checkpoint"
    assert files.newest(1, "checkpoint") is None
    (checkpoint / "step-2" / "optimizer").mkdir(parents=True)
    (checkpoint / "way").symlink_to(tmp_path)
    assert files.newest(1, "checkpoint") is None
    for name, at in (("step-2/model", 20), ("step-2/optimizer/state", 30), ("last", 10)):
        (checkpoint / name).write_text("x")
        os.utime(checkpoint / name, (at, at))
    assert files.newest(1, "checkpoint") == 30.0


def test_of_a_large_folder_every_file_counts(
    files: DirectFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_LISTED", 3)
    paths = [tmp_path / "jobs" / "1" / "out" / str(number) for number in range(9)]
    for path in paths:
        path.write_text("x")
    for at, path in enumerate(paths, 2_000_000_000):
        os.utime(path, (at, at))
        assert files.newest(1, "out") == at


def test_where_there_are_too_many_files_nobody_says_which_is_newest(
    files: DirectFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST_S", -1.0)
    assert files.newest(1, "out") is not None
    monkeypatch.setattr(module, "LOOKS", 3)
    for name in range(9):
        (tmp_path / "jobs" / "1" / "out" / str(name)).write_text("x")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(EngineError, match="too many to find the newest"):
        files.newest(1, "out")
    assert len(os.listdir("/proc/self/fd")) == before
