"""Arrays, dependencies, retries and more time in the shell, over a real pool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.app.conftest import Said
from tests.faces.real import environment

Shell = Callable[..., Said]
SUBMIT = ("submit", "--cpus", "0.1", "--mem", "10MiB", "--gpus")


@pytest.fixture
def here(shell: Shell, home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shell:
    """A shell of this process over the real pool."""
    for name in ("GPUPOOL_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, environment(home)[name])
    monkeypatch.chdir(tmp_path)
    return shell


def submitted(shell: Shell, *words: str, gpus: str = "0") -> dict[str, Any]:
    found = shell(*SUBMIT, gpus, "--json", *words)
    assert found.code == 0, found
    return found.json


def test_each_task_is_a_job_with_a_log(here: Shell) -> None:
    said = here(*SUBMIT, "0", "--array", "0-2%2", "--", "sh", "-c", "echo task $GPUPOOL_ARRAY_INDEX")
    first, _, third = said.out.splitlines()[:3]
    array = first.split()[1]
    assert first == f"Array {array} (simulated cards) took the command sh, {first.split(', ', 1)[1]}"
    assert third == (
        "It has 3 tasks: 0-2, at most 2 at once. "
        f"Each has an output and a log of its own, such as {array}[0]."
    )
    waited = here("wait", array)
    assert waited.code == 0
    assert f"Array {array}: All 3 tasks completed" in waited.err
    assert here("logs", f"{array}[2]").out == "task 2\n"
    shown = here("jobs", "--array", array).out
    assert all(f"{array}[{index}]" in shown for index in range(3))
    assert here("why", array).out.splitlines()[:2] == [
        f"Array {array} has completed.",
        "All 3 tasks completed.",
    ]
    refused = here("logs", array)
    assert refused.code == 1
    assert "each with a log and files of its own" in refused.err


def test_one_that_fails_gives_its_exit_code(here: Shell) -> None:
    said = here(*SUBMIT, "0", "--array", "0,3", "--wait", "--", "sh", "-c", "exit $GPUPOOL_ARRAY_INDEX")
    assert said.code == 3
    assert "Of 2 tasks 1 completed, 1 failed: " in said.err


def test_the_whole_and_its_parts_are_acted_on(here: Shell) -> None:
    array = submitted(here, "--array", "0-99%1", "--", "sleep", "100")["id"]
    held = here("hold", str(array), f"{array}[77]").out.splitlines()
    assert held[0].startswith(f"Array {array}: ")
    assert "99 held" in held[0] or "100 held" in held[0]
    assert held[1].startswith(f"Task {array}[77]: Held: by ")
    assert here("release", f"{array}[77]").code == 0
    assert here("cancel", str(array)).code == 0
    assert here("wait", str(array)).code == 1
    assert here("show", str(array), "--json").json["array"]["states"] == {"cancelled": 100}


def test_what_comes_after_a_failure_does_not_start(here: Shell) -> None:
    first = submitted(here, "--", "sh", "-c", "sleep 0.5; exit 1")["id"]
    second = submitted(here, "--after", str(first), "--", "true")["id"]
    third = submitted(here, "--after-any", f"{second},{first}", "--", "true")["id"]
    assert f"Waits for job {first} to end first" in here("why", str(second)).out
    assert here("wait", str(second)).code == 1
    assert here("why", str(second)).out.splitlines()[1] == (
        f"Cancelled: it comes after job {first}, which failed."
    )
    assert here("wait", str(third)).code == 0


def test_a_failure_is_tried_again(here: Shell) -> None:
    job = submitted(here, "--retries", "2", "--", "false")["id"]
    while (shown := here("show", str(job), "--json").json)["failures"] == 0:
        pass
    assert shown["state"] == "queued"
    assert "retries" in here("show", str(job)).out
    assert "It is tried again: retry 1 of 2." in here("why", str(job)).out


def test_a_running_job_gets_more_time(here: Shell) -> None:
    job = submitted(here, "--time", "1h", "--", "sleep", "100", gpus="1")["id"]
    while here("show", str(job), "--json").json["state"] != "running":
        pass
    assert here("extend", str(job), "2h").out.startswith(f"Job {job}: ")
    assert here("show", str(job), "--json").json["time_s"] == 3 * 3600
    assert "is not a duration" in here("extend", str(job), "soon").err


def test_a_dry_run_of_an_array(here: Shell) -> None:
    said = here(*SUBMIT, "0", "--array", "0-9", "--dry-run", "--", "true")
    assert "The first of its 10 tasks would start now" in said.out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--array", "9-0"], '--array "9-0": 9-0 counts down. If you mean it upwards, write 0-9.'),
        (["--array", "0-10000"], "10,001 tasks; at most 10,000"),
        (["--after", "999999"], "There is no job 999999."),
        (["--retries", "many"], '--retries "many" is not a whole number'),
        (["--notify", "never"], "notify.0 is 'never'; it can be 'end', 'fail', 'start', 'stop' or 'none'."),
    ],
)
def test_a_mistake_is_one_sentence(here: Shell, words: list[str], sentence: str) -> None:
    said = here(*SUBMIT, "0", *words, "--", "true")
    assert said.code in (1, 2)
    assert sentence in said.err
    assert "Traceback" not in said.err
