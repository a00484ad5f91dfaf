"""Budgets: hand-computed use, which neither retention, another policy nor a restart changes."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa

from jupyter_gpupool.ledger import Ledger
from jupyter_gpupool.ledger.budgets import GPU_HOUR
from jupyter_gpupool.ledger.grant_records import ActionRecord, NewBoost
from jupyter_gpupool.ledger.migrate import upgrade
from jupyter_gpupool.ledger.sqlite import connect
from jupyter_gpupool.policy.load import load_policy
from tests.ledger.conftest import start_job

HOUR, DAY = 3600, 86400
DID = ActionRecord(0, "root", "boost", "…")


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo("Europe/Berlin")).timestamp())


OCTOBER, NOVEMBER = at("2026-10-01T00:00"), at("2026-11-01T00:00")  # 745 hours: clocks go back


def policy(period: str = "month", more: str = ""):
    return load_policy(f"""
timezone: Europe/Berlin
partitions: {{all: {{gpus: ["*:*"], for: [session, job]}}}}
groups:
  lab: {{quota: {{gpus: 0}}, budget: {{gpu_hours: 1000, period: year}}}}
  vision: {{parent: lab, quota: {{gpus: 2}}, budget: {{gpu_hours: 100, period: {period}}}}}
  speech: {{parent: lab, quota: {{gpus: 2}}}}
{more}""")


def hours(ledger: Ledger, now: int, group: str = "vision", of=None) -> float:
    return ledger.grants.budgets(of or policy(), now)[group].spent / GPU_HOUR


def run(opened, start: int, end: int | None, *, charge: int = 1000, uuid: str = "SIM-0", **changes):
    """Let a job run on one card from `start` until `end`."""
    ledger = opened.ledger
    job = ledger.add_job(opened.sample.job(**changes), start)
    start_job(ledger, job.id, opened.sample.place(uuid), start, mode="whole", charge_milli=charge)
    ledger.job_running(job.id, 1, start)
    if end is not None:
        opened.end(job.id, end)
    return job


def test_what_runs_and_what_has_ended_count_with_their_price(opened):
    run(opened, OCTOBER, OCTOBER + 3 * HOUR)
    run(opened, OCTOBER + HOUR, None, charge=2000, uuid="SIM-1")
    assert hours(opened.ledger, OCTOBER + 5 * HOUR) == 3 + 2 * 4
    assert hours(opened.ledger, OCTOBER + 6 * HOUR) == 3 + 2 * 5


def test_a_slice_counts_by_its_part_of_the_card(opened, sample):
    ledger = opened.ledger
    session = ledger.add_session(sample.session(group="vision"), OCTOBER)
    place = sample.place("SIM-0", mib=4096, milli=125)
    ledger.session_held(session.id, place, OCTOBER, mode="timeslice", charge_milli=1000)
    assert hours(ledger, OCTOBER + 8 * HOUR) == 1
    ledger.end_session(session.id, "bye", OCTOBER + 16 * HOUR)
    assert hours(ledger, OCTOBER + 20 * HOUR) == 2


def test_a_period_begins_at_local_midnight_and_counts_from_there(opened):
    first = run(opened, NOVEMBER - 5 * HOUR, None)
    run(opened, NOVEMBER - HOUR, None, uuid="SIM-1")
    assert hours(opened.ledger, NOVEMBER - HOUR) == 4
    opened.end(first.id, NOVEMBER + 2 * HOUR)
    assert hours(opened.ledger, NOVEMBER + 3 * HOUR) == 2 + 3
    budget = opened.ledger.grants.budgets(policy(), NOVEMBER)["vision"]
    assert (budget.capacity, budget.ends[0]) == (100 * GPU_HOUR, at("2026-12-01T00:00"))


def test_a_group_counts_what_those_below_it_use(opened):
    run(opened, OCTOBER, OCTOBER + 3 * HOUR)
    run(opened, OCTOBER, OCTOBER + 4 * HOUR, group="speech", uuid="SIM-1")
    assert hours(opened.ledger, OCTOBER + DAY, "lab") == 7
    assert set(opened.ledger.grants.budgets(policy(), OCTOBER)) == {"lab", "vision"}


def test_neither_pruning_nor_a_restart_forgets(opened):
    run(opened, OCTOBER, OCTOBER + 3 * HOUR)
    now = OCTOBER + 20 * DAY
    assert hours(opened.ledger, now) == 3
    assert opened.ledger.prune(now, retention_s=DAY)
    assert hours(opened.ledger, now) == 3
    assert hours(opened.reopen(), now) == 3
    run(opened, now, now + 2 * HOUR)
    assert hours(opened.ledger, now + DAY) == hours(opened.reopen(), now + DAY) == 5


def test_another_policy_counts_the_same_use_in_its_own_periods(opened):
    run(opened, NOVEMBER - 30 * HOUR, NOVEMBER - 20 * HOUR)  # on Friday and Saturday
    opened.ledger.prune(NOVEMBER + 9 * DAY, retention_s=DAY)
    sunday = NOVEMBER + HOUR
    assert hours(opened.ledger, sunday) == 0
    assert hours(opened.ledger, sunday, of=policy("week")) == 10
    assert hours(opened.ledger, sunday, of=policy("quarter")) == 10
    assert hours(opened.ledger, sunday + DAY, of=policy("week")) == 0
    run(opened, sunday, sunday + HOUR)  # counted in each
    assert [
        hours(opened.ledger, sunday + DAY // 2, of=policy(kind)) for kind in ("month", "week", "year")
    ] == [
        1,
        11,
        11,
    ]


def test_without_budgets_there_is_nothing_to_read(opened, commits):
    none = load_policy(
        '{partitions: {all: {gpus: ["*:*"], for: [job]}}, groups: {vision: {quota: {gpus: 1}}}}'
    )
    before = len(commits)
    assert opened.ledger.grants.budgets(none, OCTOBER) == {}
    assert len(commits) == before


def test_the_sums_are_read_once_in_a_period(opened, commits):
    hours(opened.ledger, OCTOBER)
    before = len(commits)
    for hour in range(24):
        hours(opened.ledger, OCTOBER + hour * HOUR)
    assert len(commits) == before


def test_boosts_add_to_the_period_in_which_they_begin(opened):
    grants = opened.ledger.grants
    grants.boost(NewBoost("vision", OCTOBER + DAY, NOVEMBER + DAY, budget=50 * GPU_HOUR, giver="lab"), DID)

    def capacity(now: int, group: str = "vision") -> float:
        return opened.ledger.grants.budgets(policy(), now)[group].capacity / GPU_HOUR

    assert [capacity(OCTOBER), capacity(OCTOBER + DAY), capacity(NOVEMBER)] == [100, 150, 100]
    assert capacity(OCTOBER + DAY, "lab") == 1000  # what vision uses counts there anyway
    ended = ActionRecord(OCTOBER + 2 * DAY, "root", "end boost", "…")
    grants.end_boost(1, ended)
    assert capacity(OCTOBER + 2 * DAY) == 100


def test_a_group_elsewhere_gives_of_its_own_budget(opened):
    more = "  sound: {quota: {gpus: 1}, budget: {gpu_hours: 40}}\n"
    opened.ledger.grants.boost(
        NewBoost("vision", OCTOBER, NOVEMBER, budget=15 * GPU_HOUR, giver="sound"), DID
    )
    budgets = opened.ledger.grants.budgets(policy(more=more), OCTOBER)
    assert [budgets[name].capacity // GPU_HOUR for name in ("vision", "sound")] == [115, 25]


def test_a_session_that_never_ran_and_cpu_work_cost_nothing(opened, sample):
    session = opened.ledger.add_session(sample.session(group="vision"), OCTOBER)
    opened.ledger.end_session(session.id, "not wanted", OCTOBER + HOUR)
    assert hours(opened.ledger, OCTOBER + DAY) == 0


def test_use_of_before_this_version_counts_too(opened, tmp_path):
    opened.ledger.close()
    path = tmp_path / "old.sqlite"
    with connect(path) as connection, connection.begin():
        upgrade(connection, "0004")
        columns = {row[1] for row in connection.execute(sa.text("PRAGMA table_info(leases)"))}
        values = {
            "id": 1,
            "work": 1,
            "kind": "job",
            "attempt": 1,
            "owner": "ada",
            "group": "vision",
            "priority": "normal",
            "request": "{}",
            "placement": '{"gpu_milli": 500}',
            "mode": "whole",
            "charge_milli": 2000,
            "resumable": 0,
            "state": "free",
            "boot_id": "b",
            "requested": OCTOBER,
            "start": OCTOBER,
            "end": OCTOBER + DAY,
            "freed": OCTOBER + 4 * HOUR,
        }
        known = {name: value for name, value in values.items() if name in columns}
        names = ", ".join(f'"{name}"' for name in known)
        marks = ", ".join(f":{name}" for name in known)
        connection.execute(sa.text(f"INSERT INTO leases ({names}) VALUES ({marks})"), known)
        upgrade(connection)
        rows = connection.execute(
            sa.text('SELECT lease, "group", start, "end", rate FROM charges')
        ).fetchall()
    assert [tuple(row) for row in rows] == [(1, "vision", OCTOBER, OCTOBER + 4 * HOUR, 1_000_000)]
    opened.reopen()


@pytest.mark.parametrize("free", [True, False])
def test_a_lease_counts_until_it_is_free(opened, free):
    job = run(opened, OCTOBER, None)
    opened.end(job.id, OCTOBER + HOUR, free=free)
    assert hours(opened.ledger, OCTOBER + 2 * HOUR) == (1 if free else 2)
    if not free:
        opened.ledger.free_lease(opened.ledger.jobs[job.id].lease, OCTOBER + 3 * HOUR)
        assert hours(opened.ledger, OCTOBER + 9 * HOUR) == 3
