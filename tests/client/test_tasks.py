"""Arrays and their tasks in words."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpupool.client import options, render
from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.client.following import concerns
from jupyter_gpupool.client.request import receipt_lines
from jupyter_gpupool.client.sse import Event
from jupyter_gpupool.client.tasks import after_text, is_job, label, names, numbers, states_text, title
from tests.faces import samples

TASKS = {"tasks": "0-99:2", "count": 50, "limit": 4, "states": {"queued": 40, "running": 4, "completed": 6}}
TASK = {"array_id": 12, "array_index": 3}


def array(**changed: Any) -> dict[str, Any]:
    return samples.job(id=12, array=TASKS, **{"state": "running", **changed})


def test_names() -> None:
    job, task = samples.job(id=7), samples.job(id=15, **TASK)
    assert [label(one) for one in (job, array(), task)] == ["7", "12", "12[3]"]
    assert [title(one) for one in (job, array(), task)] == ["Job 7", "Array 12", "Task 12[3]"]
    unborn = samples.job(id=12, **TASK)
    assert [is_job(one) for one in (job, array(), task, unborn)] == [True, False, True, False]


def test_an_event_is_known_by_each_name() -> None:
    assert names({"job": 15, "array": 12, "index": 3}) == {15, 12, "12[3]"}
    assert names({"job": 7, "array": None, "index": None}) == {7}
    event = Event("1", "job", {"job": 15, "array": 12, "index": 3})
    assert concerns(event, [12])
    assert concerns(event, ["12[3]"])
    assert not concerns(event, ["12[4]", 7])
    assert concerns(Event("1", "reset", {}), [7])


@pytest.mark.parametrize(
    ("text", "found"),
    [("0-3", [0, 1, 2, 3]), ("7", [7]), ("0-20:10,25", [0, 10, 20, 25]), ("1-2,5-6", [1, 2, 5, 6])],
)
def test_the_numbers_of_tasks(text: str, found: list[int]) -> None:
    assert numbers(text) == found


def test_how_its_tasks_stand() -> None:
    assert states_text(TASKS) == "4 running, 40 waiting, 6 completed"
    assert states_text(TASKS, "running") == "4 of 50 tasks, 40 waiting, 6 completed"
    one = {"count": 1, "states": {"starting": 1}}
    assert states_text(one, "starting") == "1 of 1 task"
    mixed = {"count": 3, "states": {"starting": 2, "stopping": 1}}
    assert states_text(mixed, "stopping") == "1 of 3 tasks, 2 starting"
    assert states_text({"states": {"timed_out": 1, "held": 1200}}) == "1,200 held, 1 timed out"


def test_what_comes_before() -> None:
    assert after_text(samples.job(after=[12, 15], after_any=[9])) == "12, 15; the end of 9"
    assert after_text(samples.job()) == ""


def test_it_is_shown_as_one() -> None:
    lines = render.job(array(after=[9], retries=2, failures=1))
    assert lines[0] == "Array 12 train.py (script)"
    assert "  array       50 tasks: 0-99:2, at most 4 at once" in lines
    assert "  after       9" in lines
    assert "  retries     1 of 2 used" in lines
    standing = "  standing    4 of 50 tasks, 40 waiting, 6 completed; 3 jobs"
    assert any(line.startswith(standing) for line in lines)
    why = render.why(array())
    assert why[:2] == ["Array 12 is running.", "4 running, 40 waiting, 6 completed."]
    rows = render.jobs([array(), samples.running(id=15, **TASK)])
    assert [line.split()[0] for line in rows if "train.py" in line] == ["12", "12[3]"]


def test_the_queue_has_it_in_one_line() -> None:
    lines = render.queue({"waiting": [array(state="queued")], "running": [samples.running(id=15, **TASK)]})
    assert any("  12  ada" in line and "40 waiting" in line for line in lines)
    assert any(line.startswith("12[3]  ada") for line in lines)


def test_the_receipt_says_what_it_has() -> None:
    lines = receipt_lines(array(out=None, log=None), "train.py", [])
    assert lines[0] == "Array 12 took train.py."
    assert lines[2] == (
        "It has 50 tasks: 0-99:2, at most 4 at once. Each has an output and a log of its own, such as 12[0]."
    )


def test_a_dry_run_speaks_of_its_first_task() -> None:
    reply = {
        "would_start": "2030-01-01T00:00:00Z",
        "placement": None,
        "reason": None,
        "message": "",
        "tasks": 50,
    }
    assert any(line.startswith("The first of its 50 tasks would start") for line in render.dry_run(reply))
    assert any(line.startswith("It would start") for line in render.dry_run({**reply, "tasks": 1}))


class Handle:
    id = 12


@pytest.mark.parametrize(
    ("after", "sent"),
    [
        (12, ["12"]),
        ("12,15", ["12", "15"]),
        ([12, "15[3]"], ["12", "15[3]"]),
        (Handle(), ["12"]),
        ((Handle(), 15), ["12", "15"]),
    ],
)
def test_what_comes_before_can_be_given_in_many_ways(after: Any, sent: list[str]) -> None:
    assert options.keywords({"after": after}) == {"after": sent}


def test_a_mistyped_option_is_named() -> None:
    with pytest.raises(Refused, match="Did you mean array"):
        options.keywords({"arrays": "0-9"})
