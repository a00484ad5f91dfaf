"""The files of an attempt are whole or absent, and wrong ones count as absent."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from jupyter_gpupool.engines.base import Ended, WorkSpec
from jupyter_gpupool.engines.local.cgroups import Leaf
from jupyter_gpupool.engines.local.records import (
    ExitRecord,
    Index,
    Records,
    RunnerRecord,
    StopRecord,
    mark_begun,
    report_exit,
)


@pytest.fixture
def spec(tmp_path: Path) -> WorkSpec:
    return WorkSpec(
        key="3/2", job=3, attempt=2, kind="command", argv=("true",), environment={"N": "\udcff"}, workdir="/",
        snapshot=None, snapshot_sha256=None, folder=str(tmp_path / "jobs" / "3"), limit_s=5, grace_s=1,
        cpus_milli=0, memory_mib=0, owner="ada",
    )  # fmt: skip


@pytest.fixture
def records(spec: WorkSpec) -> Records:
    records = Records.of(spec)
    records.prepare(spec)
    return records


def test_everything_is_read_as_it_was_written(records, spec):
    runner = RunnerRecord(5, 6, "boot", 7.5, 8.5, Leaf(Path("/held"), (Path("/limit"),), "/name"))
    stop = StopRecord("cancel", 9.5)
    end = Ended("3/2", 0, None, "exit", "", 5, False, 2.0, True)
    records.write_runner(runner)
    records.write_stop(stop)
    records.write_end(end)
    assert (records.spec(), records.runner(), records.stop(), records.end()) == (spec, runner, stop, end)


def test_nothing_is_read_where_nothing_was_written(tmp_path):
    empty = Records(tmp_path)
    assert (empty.spec(), empty.runner(), empty.stop(), empty.end()) == (None, None, None, None)
    assert empty.began()  # without a record, nothing may be run again


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"pid": 5}', '{"key": 1}'])
def test_wrong_content_counts_as_absent(records, text):
    for name in ("spec.json", "runner.json", "stop", "exit.json"):
        (records.folder / name).write_text(text)
    assert (records.spec(), records.runner(), records.stop(), records.end()) == (None, None, None, None)


def test_a_link_is_not_followed(records, tmp_path):
    (tmp_path / "elsewhere").write_text(json.dumps({"cause": "cancel", "kill_at": 1.0}))
    (records.folder / "stop").symlink_to(tmp_path / "elsewhere")
    assert records.stop() is None
    records.write_stop(StopRecord("stop", 2.0))
    assert "cancel" in (tmp_path / "elsewhere").read_text()


def test_the_life_of_the_exit_record(records):
    descriptor = records.open_exit()
    room = (records.folder / "exit.json").stat().st_size
    assert not records.began()
    assert records.end() is None
    mark_begun(descriptor)
    assert records.began()
    assert records.end() is None
    record = ExitRecord(1, None, "exit", "", 30, 4.0, True)
    report_exit(descriptor, record)
    os.close(descriptor)
    assert records.end() == record
    assert records.began()
    assert (records.folder / "exit.json").stat().st_size == room  # a full disk could not have refused it


def test_a_full_disk_leaves_the_old_record(records, monkeypatch):
    records.write_stop(StopRecord("stop", 1.0))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("jupyter_gpupool.engines.local.records.json.dump", full)
    with pytest.raises(OSError, match="No space"):
        records.write_stop(StopRecord("cancel", 2.0))
    assert records.stop() == StopRecord("stop", 1.0)
    assert sorted(file.name for file in records.folder.iterdir()) == ["code", "spec.json", "stop"]


def test_the_index_remembers_until_it_is_told_to_forget(tmp_path, spec, records):
    index = Index(tmp_path)
    index.add(spec)
    index.add(spec)
    assert list(Index(tmp_path).read()) == [(spec, records)]
    index.drop(spec)
    index.drop(spec)
    assert list(index.read()) == []


def test_the_index_drops_what_leads_nowhere(tmp_path, spec, records):
    index = Index(tmp_path)
    index.add(spec)
    (records.folder / "spec.json").unlink()
    assert list(index.read()) == []
    assert list((tmp_path / "run" / "attempts").iterdir()) == []
