"""Workloads as files: this tool's own columns, two kinds of trace, and mistakes in them."""

from __future__ import annotations

from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from jupyter_gpupool.simulator.workload import (
    Task,
    Workload,
    WorkloadError,
    between,
    read_workload,
    with_limits,
    write_workload,
)

BERLIN = ZoneInfo("Europe/Berlin")


def read(tmp_path: Path, text: str) -> Workload:
    path = tmp_path / "work.csv"
    path.write_text(text)
    return read_workload(path, BERLIN)


def test_a_file_of_a_spreadsheet_is_read(tmp_path: Path) -> None:
    found = read(tmp_path, "\ufeffSubmit, Duration\n0, 60\n")
    assert found.tasks == (Task(0, 60, 60, 1),)


def test_own_columns_have_defaults_and_units(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "submit,duration,limit,gpus,gpu_memory,group,user,priority,kind,resumable,window\n"
        "90,1h,2h,2,,vision,ada,high,job,yes,night\n"
        "0,30.2,,,4GiB,,,,session,,\n"
        "0,60,,,,,,,,no,\n",
    )
    assert found.tasks == (
        Task(0, 31, 31, 0, 4096, kind="session"),
        Task(0, 60, 60, 1),
        Task(90, 3600, 7200, 2, 0, "vision", "ada", "high", "job", True, "night"),
    )


def test_what_is_written_is_read_again_and_no_name_in_it_is_a_formula(tmp_path: Path) -> None:
    path = tmp_path / "w.csv"
    tasks = (Task(5, 60, 90, group="=1+1", user="@ada", mib=4096), Task(9, 60, 60, 2, priority="-low"))
    write_workload(path, Workload("w.csv", tasks))
    assert path.read_text().splitlines()[1] == "5,60,90,,4096MiB,'=1+1,'@ada,,job,no,"
    assert read_workload(path, ZoneInfo("UTC")).tasks == tasks


def test_two_kinds_of_trace_are_known_by_their_columns(tmp_path: Path) -> None:
    relative = read(tmp_path, "job_id,submission_time,duration,num_gpu\nb,1050,5,8\na,1000,7,1\n")
    assert [(task.submit, task.duration, task.gpus) for task in relative.tasks] == [(0, 7, 1), (50, 5, 8)]
    assert relative.start is None
    dated = read(
        tmp_path,
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n2017-10-09 06:00:00,9.0,2,18.0,6214e9\n",
    )
    assert [(t.submit, t.group, t.gpus, t.resumable) for t in dated.tasks] == [
        (6 * 3600, "6214e9", 2, True),
        (7 * 3600 + 115, "11cb48", 1, True),
    ]
    assert dated.start == 1_507_507_200 - 2 * 3600, "midnight in Berlin"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("submit,duration\n0,60\n1,-5\n", "line 3.*duration"),
        ("submit,duration\n0,nan\n", "line 2.*duration"),
        ("submit,duration\nsoon,60\n", "line 2.*submit"),
        ("submit,duration,gpus\n0,60,two\n", "line 2.*gpus"),
        ("submit,duration,gpus,gpu_memory\n0,60,1,4GiB\n", "exclude each other"),
        ("submit,duration,gpu_memory\n0,60,4\n", "line 2.*gpu_memory"),
        ("submit,duration,kind\n0,60,notebook\n", "neither job nor session"),
        ("submit,duration,resumable\n0,60,perhaps\n", "Write yes or no"),
        ("submit,duration,colour\n0,60,red\n", "column 'colour'.*window"),
        ("submit,duration\n0,60,1,4\n", "line 2.*more values than columns"),
        ("when,how\n0,60\n", "no column submit and duration"),
        ("submit,limit\n0,60\n", r"no column duration\. .*name submit and duration"),
        ("", "no column submit and duration"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(WorkloadError, match=says):
        read(tmp_path, text)


def test_what_is_no_text_is_no_workload(tmp_path: Path) -> None:
    path = tmp_path / "work.csv"
    path.write_bytes(bytes(range(256)))
    with pytest.raises(WorkloadError, match=r"^work\.csv is not a text file"):
        read_workload(path, BERLIN)


def test_limits_are_drawn_by_seed_and_never_below_the_duration() -> None:
    exact = Workload("w", tuple(Task(n, 100, 100) for n in range(50)))
    drawn = with_limits(exact, 5, seed=3)
    assert drawn == with_limits(exact, 5, seed=3) != with_limits(exact, 5, seed=4)
    assert all(100 <= task.limit <= 500 for task in drawn.tasks)
    assert with_limits(exact, 1, seed=3) == exact


def test_a_part_of_a_trace_begins_at_its_first_day() -> None:
    whole = Workload("w", tuple(Task(n * 100, 1, 1) for n in range(5)), start=1000)
    part = between(whole, 100, 300)
    assert ([task.submit for task in part.tasks], part.start) == ([0, 100], 1100)
