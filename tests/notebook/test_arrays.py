"""Arrays, dependencies and retries in magics and in Python, over a real pool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import jupyter_gpupool as gpupool
from jupyter_gpupool.client.errors import PoolError
from tests.faces.real import end_jobs, environment, real_pool

LEAST = {"gpus": 0, "cpus": 0.1, "mem": "100MiB"}


@pytest.fixture(scope="module")
def pool() -> Iterator[Path]:
    with real_pool() as home:
        yield home


@pytest.fixture
def home(pool: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    for name in ("GPUPOOL_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, environment(pool)[name])
    monkeypatch.chdir(tmp_path)
    yield pool
    end_jobs(pool)


def doubled() -> int:
    import os

    return 2 * int(os.environ["GPUPOOL_ARRAY_INDEX"])


def test_an_array_of_calls(home: Path) -> None:
    array = gpupool.submit(doubled, array="1-5:2%2", **LEAST)
    assert isinstance(array, gpupool.Array)
    assert [task.id for task in array.tasks] == [f"{array.id}[{n}]" for n in (1, 3, 5)]
    assert array.wait(60) == "completed"
    assert array.result() == [2, 6, 10]
    assert array[3].result() == 6
    assert (array.status, array[3].status) == ("completed", "completed")
    assert array.why().splitlines() == [
        f"Array {array.id} has completed.",
        "All 3 tasks completed.",
        "Simulated pool: jobs really run, the cards are only counted.",
    ]
    assert isinstance(gpupool.job(array.id), gpupool.Array)
    assert gpupool.job(f"{array.id}[5]").result() == 10
    with pytest.raises(PoolError, match="each with a log and files of its own"):
        array.logs()


def test_handles_say_what_comes_before(home: Path) -> None:
    first = gpupool.submit(doubled, array="0-1", **LEAST)
    second = gpupool.submit(doubled, after=first, retries=2, notify="end,fail", array="0-1", **LEAST)
    third = gpupool.submit(doubled, after=[first, second[0]], **LEAST)
    found = second[0].details()
    assert (found["after"], found["retries"], found["notify"]) == ([first.id], 2, ["end", "fail"])
    assert third.details()["after"][0] == first.id
    for handle in (first, second, third):
        handle.cancel()
        handle.wait(60)


def test_a_task_that_is_no_job_yet_is_cancelled(home: Path) -> None:
    array = gpupool.submit(doubled, array="0-99%1", **LEAST)
    array[99].cancel()
    assert array[99].wait(60) == "cancelled"
    array.cancel()
    assert array.wait(60) == "cancelled"


def test_the_magic_submits_a_cell_as_an_array(notebook: Any, home: Path) -> None:
    line = "--array 0-2 --gpus 0 --cpus 0.1 --mem 100MiB"
    run = notebook.run(
        f"%%gpupool submit {line}\nimport os\nprint('task', os.environ['GPUPOOL_ARRAY_INDEX'])"
    )
    assert "It has 3 tasks: 0-2." in run.out
    array = run.value
    assert array.wait(60) == "completed"
    assert notebook.run(f"%gpupool logs {array.id}[1]").out == "task 1\n"
    shown = notebook.display(f"%gpupool show {array.id}")
    assert "Array " in shown["text/html"]
    assert "3 tasks: 0-2" in shown["text/html"]
    assert f"{array.id}[2]" in notebook.display(f"%gpupool jobs --array {array.id}")["text/html"]
    assert repr(array) == f"Array {array.id} (cell): completed, All 3 tasks completed"


def test_more_time(notebook: Any, home: Path) -> None:
    job = gpupool.submit(doubled, **LEAST)
    job.cancel()
    job.wait(60)
    run = notebook.run(f"%gpupool extend {job.id} 1h")
    assert str(run.error).startswith(f"Job {job.id} has ended already: its state is ")
