"""The report of a period and the history: what their figures mean, and who sees whose."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from jupyter_gpupool.client.peercred import Peer
from jupyter_gpupool.ledger import days
from jupyter_gpupool.ledger.records import CardRecord
from jupyter_gpupool.ledger.use import CardUse, DayUse, Use
from jupyter_gpupool.policy.load import load_policy
from jupyter_gpupool.scheduler.model import Budget
from jupyter_gpupool.service import report
from jupyter_gpupool.service.handlers import past
from jupyter_gpupool.service.identity import Identity
from jupyter_gpupool.service.scopes import Scope

UTC = ZoneInfo("UTC")
HOUR, DAY = 3600, 86400
POLICY = """
partitions: {all: {gpus: ['*:*'], for: [session, job]}}
groups:
  lab: {quota: {gpus: 1}, managers: [max]}
  vision: {parent: lab, quota: {gpus: 1}, budget: {gpu_hours: 10, period: month}, members: [ada, bob]}
  speech: {members: [eve], managers: [mia]}
"""


def used(**changes: Any) -> Use:
    return Use(gpu_milli_s=2 * HOUR * 1000, charged_milli_s=HOUR * 1000) + Use(**changes)


DAYS = [
    DayUse(
        0,
        DAY,
        {
            ("vision", "ada", "job"): used(
                started=3, wait_s=600, waits={60: 2, 480: 1}, completed=2, failed=1
            ),
            ("vision", "bob", "session"): used(started=4, idle_s=HOUR, idled=2, waits={0: 4}),
            ("lab", "ada", "job"): used(stopped=2, known_milli_s=1000 * HOUR, used_milli_s=250 * HOUR),
        },
        {"a": CardUse(6 * HOUR, 3 * HOUR * 1000, HOUR, 500 * HOUR), "b": CardUse()},
    ),
    DayUse(DAY, 2 * DAY, {("speech", "eve", "job"): used()}, {"a": CardUse(HOUR, HOUR * 2000)}),
]
CARDS = {name: CardRecord(name, "node1", place, "", 1000) for place, name in enumerate("ab")}
NOON = DAY + DAY // 2


def test_what_is_used_adds_up_and_waits_are_those_of_jobs() -> None:
    found = report.used(DAYS[0].uses.items())
    assert (found["gpu_hours"], found["charged_gpu_hours"]) == (6.0, 3.0)
    assert (found["wait_mean_s"], found["wait_p95_s"], found["session_wait_p95_s"]) == (200, 480, 0)
    assert found["ended"] == {"completed": 2, "failed": 1}
    assert (found["measured_gpu_hours"], found["utilisation"]) == (1.0, 0.25)
    assert (found["stops"], found["sessions"], found["idle_sessions"], found["idle_hours"]) == (2, 4, 2, 1.0)


def test_what_nobody_has_done_is_not_known_rather_than_zero() -> None:
    found = report.used([])
    assert (found["utilisation"], found["wait_mean_s"], found["wait_p95_s"]) == (None, None, None)


@pytest.mark.parametrize(
    ("waits", "value"), [({}, None), ({5: 1}, 5), ({0: 19, 9: 1}, 0), ({0: 18, 9: 2}, 9), ({1: 95, 2: 5}, 1)]
)
def test_95_percent(waits: dict[int, int], value: int | None) -> None:
    assert report.percentile(waits, 95) == value


def test_hours_for_a_card_and_day_count_what_is_over() -> None:
    whole = report.total(DAYS, CARDS, NOON)  # 2 cards, 1.5 days
    assert whole["touched_hours_per_card_day"] == round(7 / 3, 3)
    assert whole["held_hours_per_card_day"] == round((3 + 2) / 3, 3)
    assert whole["utilisation"] == 0.5
    first, second = report.day_rows(DAYS, CARDS, UTC, NOON)
    assert (first["date"], first["touched_hours_per_card_day"]) == ("1970-01-01", 3.0)
    assert (second["date"], second["touched_hours_per_card_day"]) == ("1970-01-02", 1.0)
    a, b = report.card_rows(DAYS, CARDS, NOON)
    assert (a["touched_hours_per_card_day"], b["touched_hours_per_card_day"]) == (round(7 / 1.5, 3), 0.0)
    assert report.capacity_hours(DAYS, 2, NOON) == 72.0


def test_a_group_has_what_is_below_it_and_its_own_quota_and_budget() -> None:
    policy = load_policy(POLICY)
    budgets = {"vision": Budget(10 * report.GPU_HOUR, 12 * report.GPU_HOUR, (DAY,))}
    lab, vision, speech = report.group_rows(DAYS, policy, budgets, NOON, ["lab", "vision", "speech"])
    assert (lab["gpu_hours"], vision["gpu_hours"], speech["gpu_hours"]) == (6.0, 4.0, 2.0)
    assert (lab["quota_gpu_hours"], speech["quota_gpu_hours"]) == (36.0, None)
    assert lab["budget"] is None
    assert vision["budget"] == {
        "gpu_hours": 10.0,
        "spent_gpu_hours": 12.0,
        "left_gpu_hours": 0.0,
        "until": "1970-01-02T00:00:00Z",
    }


def test_users_whose_numbers_are_not_shown_are_one_row_of_their_group() -> None:
    rows = report.use_rows(DAYS, lambda group, user: user == "ada")
    assert [(row["group"], row["user"], row["gpu_hours"]) for row in rows] == [
        ("lab", "ada", 2.0),
        ("speech", None, 2.0),
        ("vision", None, 2.0),
        ("vision", "ada", 2.0),
    ]


# -- the service ---------------------------------------------------------------------------------------------


@dataclass
class Someone:
    """Whoever connects is this one."""

    user: str = "root"
    scopes: frozenset[Scope] = frozenset(("read", "submit"))

    def __call__(self, peer: Peer) -> Identity:
        return Identity(self.user, self.scopes, peer.uid, peer.pid)

    def become(self, user: str, *more: Scope) -> None:
        self.user, self.scopes = user, frozenset(("read", "submit", *more))


class Clock:
    """The time, as the test says."""

    def __init__(self, text: str) -> None:
        self.now = datetime.fromisoformat(text).timestamp()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def who() -> Someone:
    return Someone()


@pytest.fixture
def clock() -> Clock:
    return Clock("2026-10-12T12:00:00Z")


@pytest.fixture
def call(start: Callable[..., Any], who: Someone, clock: Clock) -> Iterator[Any]:
    """Ask a pool of two cards where ada, bob and eve have each run a job."""
    asked = start("1x2x8GiB", POLICY, parts={"identify": who, "clock": clock})
    for user in ("ada", "bob", "eve"):
        who.become(user)
        job = asked.submit("true", name=f"{user}s-work")
        asked.wait(job["id"])
    who.become("root", "manage", "admin", "read_all")
    yield asked
    who.become("root", "admin")


def users(call: Any, query: str = "") -> list[tuple[str, str | None]]:
    answer = call("GET", f"report{query}")
    assert answer.status == 200, answer
    return [(row["group"], row["user"]) for row in answer.body["use"]]


def test_each_sees_own_numbers_a_manager_the_groups_an_administrator_all(call: Any, who: Someone) -> None:
    everybody = [("speech", "eve"), ("vision", "ada"), ("vision", "bob")]
    assert users(call) == everybody
    who.become("ada")
    assert users(call) == [("speech", None), ("vision", None), ("vision", "ada")]
    who.become("max", "manage")
    assert users(call) == [("speech", None), ("vision", "ada"), ("vision", "bob")]
    who.become("boss", "read_all")
    assert users(call) == everybody


def test_of_one_user_or_group(call: Any, who: Someone) -> None:
    assert users(call, "?user=bob") == [("vision", "bob")]
    assert users(call, "?group=lab") == [("vision", "ada"), ("vision", "bob")]
    found = call("GET", "report?group=lab").body
    assert [row["group"] for row in found["groups"]] == ["lab", "vision"]
    assert found["total"]["ended"] == {"completed": 2}
    who.become("ada")
    assert users(call, "?user=ada") == [("vision", "ada")]
    assert users(call, "?user=ada&group=speech") == []
    refused = call("GET", "report?user=bob")
    assert (refused.status, refused.error["code"]) == (403, "forbidden")
    assert "for bob, and for the managers of the group" in refused.error["message"]
    who.become("mia", "manage")
    assert call("GET", "report?user=bob").status == 403
    assert users(call, "?user=eve") == [("speech", "eve")]


def test_a_mistake_in_the_question_is_said(call: Any) -> None:
    refused = call("GET", "report?group=visoin")
    assert (refused.status, refused.error["hint"]) == (404, "Did you mean vision?")
    assert call("GET", "report?week=never").status == 422
    assert call("GET", "history?at=never").status == 422
    assert call("GET", "history?at=2027-01-01").status == 422
    assert call("GET", "history?gpu=node9:0").status == 404
    assert call("GET", "history?gpu=SIM-").error["hint"] == "It may be SIM-node1-0, SIM-node1-1."


def test_nobody_waits_while_records_are_added_up(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the loop's thread, which also asks for the period and the moment, does the sums."""
    threads: dict[str, int] = {}

    def watched(owner: Any, name: str) -> None:
        work = getattr(owner, name)

        def seen(*given: Any, **named: Any) -> Any:
            threads[name] = threading.get_ident()
            return work(*given, **named)

        monkeypatch.setattr(owner, name, seen)

    watched(past, "period")
    for owner, name in ((days, "use_of_days"), (days, "_read"), (past.sums, "total"), (past, "holdings")):
        watched(owner, name)
    assert call("GET", "report").body["total"]["ended"] == {"completed": 3}
    assert call("GET", "history").status == 200
    loop = threads.pop("period")
    assert (len(threads), loop in threads.values()) == (4, False)


def test_who_held_what_at_a_moment_and_under_which_policy(call: Any, who: Someone, clock: Clock) -> None:
    clock.now += HOUR
    who.become("ada")
    job = call.submit("sleep 100", name="long")
    call.wait(job["id"], "running")
    clock.now += HOUR
    call("POST", f"jobs/{job['id']}/cancel")
    call.wait(job["id"])
    who.become("root", "admin", "read_all")
    later = POLICY.replace("gpus: 1}, budget", "gpus: 2}, budget")
    assert call("POST", "policy", {"text": later, "apply": True}).status == 200
    clock.now += HOUR
    held = call("GET", "history?at=13:30").body
    (card, other) = held["cards"]
    (holder,) = card["holders"]
    assert (card["node"], card["index"], other["holders"]) == ("node1", 0, [])
    assert {
        name: holder[name] for name in ("kind", "id", "name", "user", "group", "attempt", "gpu_milli")
    } == {
        "kind": "job",
        "id": job["id"],
        "name": "long",
        "user": "ada",
        "group": "vision",
        "attempt": 1,
        "gpu_milli": 1000,
    }
    assert (holder["since"], holder["until"]) == ("2026-10-12T13:00:00Z", "2026-10-12T14:00:00Z")
    assert "root" in holder["ended_because"] or "ada" in holder["ended_because"]
    assert held["policy"]["since"] == "2026-10-12T12:00:00Z"
    assert call("GET", "history").body["policy"]["since"] == "2026-10-12T14:00:00Z"
    assert [card["holders"] for card in call("GET", "history?at=14:00").body["cards"]] == [[], []]
    assert [card["index"] for card in call("GET", "history?gpu=node1:1").body["cards"]] == [1]


def test_names_of_the_past_are_shown_as_far_as_those_of_today(call: Any, who: Someone, clock: Clock) -> None:
    assert call("POST", "policy", {"text": POLICY + "visibility: groups\n", "apply": True}).status == 200
    who.become("ada")
    job = call.submit("sleep 100", name="long")
    call.wait(job["id"], "running")
    (own,) = call("GET", "history?gpu=node1:0").body["cards"][0]["holders"]
    assert (own["user"], own["name"]) == ("ada", "long")
    who.become("eve")
    (seen,) = call("GET", "history?gpu=node1:0").body["cards"][0]["holders"]
    assert (seen["user"], seen["name"], seen["ended_because"], seen["group"]) == (None, None, None, "vision")
