"""Jobs that come after others start when these have ended as they should, and else are cancelled with why."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpupool.client.peercred import Peer
from jupyter_gpupool.service.identity import Identity
from jupyter_gpupool.service.scopes import ADMINISTRATOR


@pytest.fixture
def call(start: Any) -> Any:
    return start("1x4x8GiB")


def test_it_starts_when_all_before_it_have_completed(call: Any) -> None:
    mark = call.home.path / "mark"
    first = call.submit(f"while [ ! -e {mark} ]; do sleep 0.02; done")
    second = call.submit("true")
    after = call.submit("true", after=[first["id"], str(second["id"])])
    assert after["after"] == [first["id"], second["id"]]
    call.wait(second["id"])
    waits = call.job(after["id"])
    assert (waits["state"], waits["waiting"]["reason"]) == ("queued", "Dependency")
    assert str(first["id"]) in waits["waiting"]["message"]
    assert waits["waiting"]["expected_start"] is None
    mark.touch()
    assert call.wait(after["id"])["state"] == "completed"


def test_a_failure_cancels_what_comes_after_it_and_after_that(call: Any) -> None:
    mark = call.home.path / "mark"
    first = call.submit(f"while [ ! -e {mark} ]; do sleep 0.02; done; exit 3")
    second = call.submit("true", after=[first["id"]])
    third = call.submit("true", after=[f"#{second['id']}"], array="0-99")
    any_end = call.submit("true", after_any=[second["id"]])
    mark.touch()
    assert call.wait(third["id"])["array"]["states"] == {"cancelled": 100}
    assert call.job(second["id"])["outcome"] == f"Cancelled: it comes after job {first['id']}, which failed."
    reason = f"Cancelled: it comes after job {second['id']}, which was cancelled."
    assert call.job(f"{third['id']}[0]")["outcome"] == reason
    assert call.job(f"{third['id']}[99]")["outcome"] == reason
    assert call.wait(any_end["id"])["state"] == "completed"


def test_it_comes_after_a_whole_array_or_one_of_its_tasks(call: Any) -> None:
    mark = call.home.path / "mark"
    array = call.submit(
        f"[ $GPUPOOL_ARRAY_INDEX != 1 ] || while [ ! -e {mark} ]; do sleep 0.02; done", array="0-60%3"
    )
    whole = call.submit("true", after=[array["id"]])
    task = call.submit("true", after=[f"{array['id']}[0]"])
    late = call.submit("true", after=[f"{array['id']}[60]"])
    assert call.wait(task["id"])["state"] == "completed"
    assert call.job(whole["id"])["state"] == "queued"
    mark.touch()
    assert call.wait(late["id"], patience=40)["state"] == "completed"
    assert call.wait(whole["id"], patience=40)["state"] == "completed"


def test_a_failed_task_is_named_as_the_reason(call: Any) -> None:
    mark = call.home.path / "mark"
    array = call.submit(
        f"while [ ! -e {mark} ]; do sleep 0.02; done; exit $GPUPOOL_ARRAY_INDEX", array="0-5%1"
    )
    after = call.submit("true", after=[array["id"]])
    mark.touch()
    assert call.wait(after["id"])["outcome"] == (
        f"Cancelled: it comes after array {array['id']}, which will not complete, because its task 1 failed."
    )


def test_cancelling_the_first_cancels_the_second(start: Any) -> None:
    call = start("1x1x8GiB")
    call.wait(call.submit("exec sleep 100")["id"], "running")
    first = call.submit("true")
    second = call.submit("true", after=[first["id"]])
    call("POST", f"jobs/{first['id']}/cancel")
    assert "which was cancelled" in call.wait(second["id"])["outcome"]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([99], "There is no job 99."),
        (["2"], "There is no job 2."),
        (["x"], "'x' is no number of a job"),
        (["1[0]"], "There is no task 0 of job 1."),
    ],
)
def test_it_can_only_name_what_is_there(call: Any, names: list[Any], words: str) -> None:
    """So no job ever waits for itself, or for one that waits for it."""
    call.submit("true")
    for option in ("after", "after_any"):
        answer = call("POST", "jobs", call.command("true", **{option: names}))
        assert (answer.status, answer.error["code"]) == (422, "invalid_option")
        assert words in answer.error["message"]


def test_after_a_failure_nothing_is_accepted(call: Any) -> None:
    failed = call.wait(call.submit("exit 3")["id"])
    answer = call("POST", "jobs", call.command("true", after=[failed["id"]]))
    assert answer.status == 422
    assert answer.error["message"] == (
        f"Job {failed['id']} failed, so what comes after it would never start."
    )
    assert "--after-any" in answer.error["hint"]
    assert call.wait(call.submit("true", after_any=[failed["id"]])["id"])["state"] == "completed"


def test_after_what_has_completed_it_starts_at_once(call: Any) -> None:
    done = call.wait(call.submit("true")["id"])
    assert call.wait(call.submit("true", after=[done["id"]])["id"])["state"] == "completed"


def test_it_comes_after_ones_own_only(start: Any) -> None:
    who = ["ada"]

    def identify(peer: Peer) -> Identity:
        return Identity(who[0], ADMINISTRATOR, peer.uid, peer.pid)

    call = start("1x1x8GiB", parts={"identify": identify})
    hers = call.submit("true")
    who[0] = "bob"
    answer = call("POST", "jobs", call.command("true", after=[hers["id"]]))
    assert (answer.status, answer.error["code"]) == (422, "invalid_option")
    assert answer.error["message"].startswith(f"Job {hers['id']} is not yours")


def test_a_dry_run_says_that_it_depends(call: Any) -> None:
    first = call.submit("exec sleep 100")
    answer = call("POST", "jobs?dry_run=true", call.command("true", after=[first["id"]]))
    assert (answer.body["reason"], answer.body["would_start"]) == ("Dependency", None)


def test_only_what_is_submitted_makes_a_task_a_job_of_its_own(start: Any) -> None:
    call = start(
        "1x1x8GiB",
        "partitions: {all: {gpus: ['*:*'], for: [job]}}\ngroups: {team: {quota: {gpus: 1}}}\n"
        "default_group: team",
    )
    array = call.submit("exec sleep 100", array="0-99%1")["id"]
    number = call.submit("true")["id"]
    for option in ("after", "after_any"):
        body = call.command("true", **{option: [f"{array}[90]"]})
        assert call("POST", "jobs?dry_run=true", body).body["reason"] == "Dependency"
        body["resources"]["gpus"] = 2
        assert call("POST", "jobs", body).status == 422, "more than anybody may have"
    assert call.submit("true")["id"] == number + 1
    waits = call.submit("true", after=[f"{array}[90]"])
    assert (waits["after"], waits["id"]) == ([number + 2], number + 3)


def test_a_task_that_was_cancelled_before_it_was_a_job_has_ended(call: Any) -> None:
    array = call.submit("exec sleep 100", array="0-99%1")["id"]
    call("POST", f"jobs/{array}/cancel")
    assert call.wait(call.submit("true", after_any=[f"{array}[90]"])["id"])["state"] == "completed"


def test_a_service_that_was_killed_cancels_what_is_left_to_cancel(spawn: Any) -> None:
    service = spawn("1x2x8GiB")
    call = service.call
    first = call.submit("sleep 0.3; exit 3")
    second = call.submit("true", after=[first["id"]])
    third = call.submit("true", after=[second["id"]], array="0-99")
    call.wait(first["id"], "running")
    service.kill()
    service = spawn("1x2x8GiB")
    assert service.call.wait(third["id"])["array"]["states"] == {"cancelled": 100}
    assert service.call.job(second["id"])["outcome"].endswith("which failed.")
