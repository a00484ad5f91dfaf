"""What users ask for, and who decides it with a sentence."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.service.granting import Pool, cards


def asked(pool: Pool, user: str, kind: str, wants: dict[str, Any], **more: Any) -> dict[str, Any]:
    body = {"kind": kind, "wants": wants, "because": "The paper is due.", **more}
    return pool.done(user, "POST", "requests", body)


def test_a_user_asks_and_the_manager_approves_with_a_sentence(pool: Pool) -> None:
    request = asked(pool, "bob", "boost", {"gpus": 1, "until": "2d"})
    assert (request["state"], request["group"]) == ("open", "vision")
    assert request["text"] == "1 GPU more for bob in vision for 2d"
    assert [one["id"] for one in pool.done("ada", "GET", "requests")["requests"]] == [request["id"]]
    assert not pool.done("cy", "GET", "requests")["requests"]
    path = f"requests/{request['id']}/approve"
    assert pool.refused("bob", "POST", path, {"answer": "Yes."})[0] == 403
    assert pool.refused("ada", "POST", path, {"answer": ""})[0] == 422
    decided = pool.done("ada", "POST", path, {"answer": "Until the paper is out."})
    assert (decided["state"], decided["by"], decided["answer"]) == (
        "approved",
        "ada",
        "Until the paper is out.",
    )
    boost = pool.done("bob", "GET", "boosts")["boosts"][0]
    assert (boost["id"], boost["user"], boost["because"]) == (decided["grant"], "bob", "The paper is due.")
    assert pool.group("bob", "vision")["user"]["limits"]["gpus_milli"] == 2000
    assert pool.refused("ada", "POST", path, {"answer": "Yes."}) == (
        409,
        f"Request {request['id']} is approved already.",
    )
    assert not pool.done("bob", "GET", "requests")["requests"]
    assert pool.done("bob", "GET", "requests?all=true")["requests"][0]["answer"] == "Until the paper is out."


def test_a_request_is_denied_with_a_sentence_or_taken_back(pool: Pool) -> None:
    request = asked(pool, "bob", "boost", {"gpus": 1, "until": "2d"})
    denied = pool.done("grace", "POST", f"requests/{request['id']}/deny", {"answer": "Not this week."})
    assert (denied["state"], denied["answer"], denied["grant"]) == ("denied", "Not this week.", None)
    assert not pool.done("root", "GET", "boosts")["boosts"]
    request = asked(pool, "bob", "boost", {"gpus": 1, "until": "2d"})
    assert pool.refused("ada", "DELETE", f"requests/{request['id']}")[0] == 404
    assert pool.done("bob", "DELETE", f"requests/{request['id']}")["state"] == "withdrawn"


def test_what_the_manager_could_not_grant_an_approval_does_not_grant_either(pool: Pool) -> None:
    request = asked(pool, "bob", "boost", {"gpus": 2, "until": "2d", "user": None})
    path = f"requests/{request['id']}/approve"
    assert pool.refused("ada", "POST", path, {"answer": "Yes."})[0] == 403
    assert pool.done("ada", "GET", "requests")["requests"][0]["state"] == "open"
    assert pool.done("grace", "POST", path, {"answer": "Yes."})["state"] == "approved"
    assert pool.group("bob", "vision")["quota"]["gpus_milli"] == 4000


def test_a_reservation_that_was_asked_for_comes_out_of_the_groups_quota(pool: Pool) -> None:
    wants = {"gpus": 2, "node": "node2", "start": "1d", "until": "2h"}
    request = asked(pool, "bob", "reservation", wants)
    assert request["text"] == "2 GPUs (node2) set apart for bob in 1d for 2h"
    pool.done("ada", "POST", f"requests/{request['id']}/approve", {"answer": "For the demo."})
    kept = pool.done("bob", "GET", "reservations")["reservations"][0]
    assert (cards(kept), kept["users"], kept["out_of"]) == (["node2:0", "node2:1"], ["bob"], "vision")


def test_a_higher_budget_is_asked_for_and_granted(pool: Pool) -> None:
    request = asked(pool, "ada", "budget", {"gpu_hours": 5})
    assert request["text"] == "5 GPU hours more for vision"
    assert pool.refused("ada", "POST", f"requests/{request['id']}/approve", {"answer": "Yes."})[0] == 403
    pool.done("root", "POST", f"requests/{request['id']}/approve", {"answer": "Once."})
    assert pool.group("ada", "vision")["budget"]["gpu_hours"] == 15


def test_more_time_within_what_the_policy_allows_and_beyond_by_an_administrator(pool: Pool) -> None:
    job = pool.submit("bob", time="4h")
    pool.wait(job["id"], "running")
    before = pool.done("bob", "GET", f"jobs/{job['id']}")
    request = asked(pool, "bob", "time", {"work": job["id"], "time": "3h"})
    assert request["text"] == f"3h more for {job['id']}"
    pool.done("ada", "POST", f"requests/{request['id']}/approve", {"answer": "Let it finish."})
    after = pool.done("bob", "GET", f"jobs/{job['id']}")
    assert after["time_s"] == before["time_s"] + 3 * 3600 == 7 * 3600
    ends = [datetime.fromisoformat(reply["expires_at"].replace("Z", "+00:00")) for reply in (before, after)]
    assert ends[1] - ends[0] == timedelta(hours=3)
    again = asked(pool, "bob", "time", {"work": job["id"], "time": "2h"})
    path = f"requests/{again['id']}/approve"
    status, message = pool.refused("ada", "POST", path, {"answer": "Fine."})
    assert status == 409
    assert "may last 7h; with 2h more that would be above what the policy allows in vision, 8h" in message
    assert pool.done("root", "POST", path, {"answer": "Fine."})["state"] == "approved"
    assert pool.done("bob", "GET", f"jobs/{job['id']}")["time_s"] == 9 * 3600


def test_a_job_that_was_given_time_is_not_ended_at_its_first_limit(pool: Pool) -> None:
    job = pool.submit("bob", "sleep 2.5", time="2s", grace="0s")
    request = asked(pool, "bob", "time", {"work": job["id"], "time": "1h"})
    pool.done("ada", "POST", f"requests/{request['id']}/approve", {"answer": "Let it finish."})
    assert pool.wait(job["id"], "completed", "timed_out", "failed")["state"] == "completed"


def test_a_session_gets_more_time(pool: Pool) -> None:
    lease = pool.done("bob", "POST", "leases", {"gpus": 1, "time": "1h"})
    request = asked(pool, "bob", "time", {"work": lease["id"], "time": "30m"})
    pool.done("ada", "POST", f"requests/{request['id']}/approve", {"answer": "Fine."})
    after = pool.done("bob", "GET", f"leases/{lease['id']}")
    assert (after["time_s"], after["state"]) == (5400, "held")
    ends = [datetime.fromisoformat(reply["expires_at"].replace("Z", "+00:00")) for reply in (lease, after)]
    assert ends[1] - ends[0] == timedelta(minutes=30)
    pool.done("bob", "DELETE", f"leases/{lease['id']}")


@pytest.mark.parametrize(
    ("user", "kind", "wants", "status", "message"),
    [
        ("bob", "boost", {"gpus": "x", "until": "1d"}, 422, 'gpus "x" is not a number.'),
        ("bob", "boost", {"gpus": 1}, 422, "whatever is granted has an end"),
        ("bob", "boost", {"gpus": 1, "until": "yesterday"}, 422, "until 'yesterday' is no time."),
        ("bob", "boost", {"cards": 1}, 422, "cards"),
        ("bob", "budget", {"gpus": 1, "until": "1d"}, 422, "A higher budget is asked for in GPU hours."),
        ("bob", "reservation", {"gpus": 1, "until": "soon"}, 422, "until 'soon' is no time."),
        ("bob", "boost", {"cpus": 1, "until": "1d"}, 422, "Of one user only the number of cards"),
        (
            "bob",
            "boost",
            {"gpus": 1, "until": "1d", "user": "cy", "group": "speech"},
            422,
            "no limit to raise",
        ),
        ("bob", "reservation", {"gpus": 99, "until": "1h"}, 422, "99 cards cannot be reserved of 8 cards"),
        ("bob", "reservation", {"cards": ["node7:1"], "until": "1h"}, 422, "names no card"),
        ("bob", "reservation", {"gpus": 1, "until": "1h", "maintenance": True}, 422, "for nobody"),
        ("bob", "time", {"work": 999_999, "time": "1h"}, 404, "There is no job or lease 999999"),
        ("bob", "time", {"work": 999_999, "time": "long"}, 422, "is not a duration"),
        ("eve", "boost", {"gpus": 1, "until": "1d"}, 422, "group"),
    ],
)
def test_a_request_that_nobody_could_grant_is_refused_at_once(
    pool: Pool, user: str, kind: str, wants: dict[str, Any], status: int, message: str
) -> None:
    body = {"kind": kind, "wants": wants, "because": "Please."}
    found = pool.refused(user, "POST", "requests", body)
    assert found[0] == status, found
    assert message in found[1]


def test_more_time_is_decided_in_the_group_of_the_work_and_asked_for_before_its_end(pool: Pool) -> None:
    job = pool.submit("eve", "true", resources={"gpus": 0})
    pool.wait(job["id"], "completed")
    body = {"kind": "time", "wants": {"work": job["id"], "time": "1h"}, "because": "Please."}
    ended = f"Job {job['id']} is completed: it can have no more time."
    assert pool.refused("eve", "POST", "requests", body) == (409, ended)
    job = pool.submit("eve", resources={"gpus": 0})
    wish = {"work": job["id"], "time": "1h"}
    request = asked(pool, "eve", "time", wish)
    assert request["group"] == "pool"
    assert pool.refused("ada", "POST", f"requests/{request['id']}/approve", {"answer": "Yes."})[0] == 404
    pool.done("root", "POST", f"requests/{request['id']}/approve", {"answer": "Yes."})


def test_more_time_is_for_ones_own_work(pool: Pool) -> None:
    job = pool.submit("cy", time="1h")
    body = {"kind": "time", "wants": {"work": job["id"], "time": "1h"}, "because": "Please."}
    assert pool.refused("bob", "POST", "requests", body)[0] == 404


def test_too_many_open_requests_are_refused(pool: Pool) -> None:
    for _ in range(20):
        asked(pool, "bob", "boost", {"gpus": 1, "until": "2d"})
    body = {"kind": "boost", "wants": {"gpus": 1, "until": "2d"}, "because": "Please."}
    assert pool.refused("bob", "POST", "requests", body) == (409, "20 requests of yours wait for an answer.")
