"""Every figure on a case small enough to compute by hand."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpupool.simulator.figures import figures, mean, percentile, shown

DAY = 86400
POOL = {
    "event": "pool",
    "horizon_s": DAY,
    "gpus": [{"gpu": f"G{n}", "node": "node1", "memory_mib": 1000, "partition": "all"} for n in range(2)],
}


def job(
    id: int, submit: int, duration: int, *more: dict[str, Any], kind: str = "job"
) -> list[dict[str, Any]]:
    common = {"kind": kind, "id": id, "user": "ada", "group": "vision"}
    first = {
        "t": submit,
        "event": "submit",
        "request": {"gpus": 1},
        "limit_s": duration,
        "duration_s": duration,
    }
    return [{**common, **event} for event in (first, *more)]


def start(t: int, *gpus: str, mib: int = 1000) -> dict[str, Any]:
    return {"t": t, "event": "start", "gpus": [{"gpu": gpu, "memory_mib": mib} for gpu in gpus]}


def end(t: int, outcome: str = "completed") -> dict[str, Any]:
    return {"t": t, "event": "end", "outcome": outcome}


def told(t: int, start_t: int) -> dict[str, Any]:
    return {"t": t, "event": "estimate", "start_t": start_t}


def of(*works: list[dict[str, Any]]) -> dict[str, Any]:
    events = sorted((event for work in works for event in work), key=lambda event: event["t"])
    return figures(POOL, events)


def test_completions_are_counted_up_to_the_horizon_and_scaled_to_a_week() -> None:
    found = of(
        job(1, 0, 100, start(0, "G0"), end(100)),
        job(2, 0, DAY, start(0, "G1"), end(DAY)),
        job(3, 0, 50, start(100, "G0"), end(150, "timed_out")),
        job(4, 10, 50, start(200, "G0")),
    )
    assert found["jobs_per_week"] == 14
    assert (found["jobs_submitted"], found["jobs_completed"], found["jobs_unfinished"]) == (4, 2, 1)


def test_held_hours_weigh_memory_and_touched_hours_do_not() -> None:
    """One card is held whole for 6 h; the other by two quarters, over [0, 8 h] and [4 h, 12 h]."""
    hour = 3600
    found = of(
        job(1, 0, 6 * hour, start(0, "G0"), end(6 * hour)),
        job(2, 0, 8 * hour, start(0, "G1", mib=250), end(8 * hour), kind="session"),
        job(3, 0, 8 * hour, start(4 * hour, "G1", mib=250), end(12 * hour), kind="session"),
    )
    assert found["held_hours_per_card_day"] == (6 + 2 + 2) / 2
    assert found["touched_hours_per_card_day"] == (6 + 12) / 2


def test_what_is_held_at_the_horizon_counts_up_to_it() -> None:
    found = of(job(1, 0, 2 * DAY, start(DAY // 2, "G0", "G1")))
    assert found["held_hours_per_card_day"] == found["touched_hours_per_card_day"] == 12


def test_a_job_that_is_stopped_and_goes_on_has_waited_for_all_but_its_work() -> None:
    found = of(
        job(1, 100, 50, start(110, "G0"), end(130, "preempted"), start(200, "G1"), end(230)),
        job(2, 100, 50, start(100, "G1"), end(150)),
    )
    assert found["job_wait_mean_s"] == ((230 - 100 - 50) + 0) / 2
    assert found["preemptions"] == 1
    assert found["bounded_slowdown_mean"] == (130 / 50 + 1) / 2
    assert found["held_hours_per_card_day"] == pytest.approx((20 + 30 + 50) / 3600 / 2)


def test_slowdown_is_bounded_below_ten_seconds() -> None:
    found = of(job(1, 0, 2, start(18, "G0"), end(20)), job(2, 0, 1, start(0, "G1"), end(1)))
    assert found["bounded_slowdown_mean"] == (20 / 10 + 1) / 2


def test_a_session_waits_until_it_starts_or_is_given_up_or_time_is_over() -> None:
    found = of(
        job(1, 0, 100, start(30, "G0"), end(100), kind="session"),
        job(2, 0, 100, end(100, "cancelled"), kind="session"),
        job(3, DAY - 70, 100, kind="session"),
    )
    assert found["session_wait_p95_s"] == 100
    assert found["sessions"] == 3
    assert found["job_wait_mean_s"] is None


def test_errors_of_expected_starts_are_parts_of_the_wait() -> None:
    found = of(
        job(1, 0, 10, told(0, 150), start(100, "G0"), end(110)),
        job(2, 0, 10, told(0, 90), start(100, "G1"), end(110)),
        job(3, 0, 10, told(0, 200), start(200, "G0"), end(210)),
        job(4, 0, 10, told(0, 9), start(59, "G1"), end(69)),
        job(5, 0, 10, start(500, "G1"), end(510)),
        job(6, 0, 10, told(0, 9)),
    )
    assert found["eta_error_median"] == 0.1


def test_percentiles_are_nearest_ranks() -> None:
    assert [percentile([15, 20, 35, 40, 50], part) for part in (5, 30, 40, 50, 100)] == [15, 20, 20, 35, 50]
    assert percentile(range(1, 101), 95) == 95
    assert percentile([], 95) is None
    assert mean([]) is None


def test_figures_are_written_for_people() -> None:
    assert shown("jobs_per_week", 413.0) == "413"
    assert shown("job_wait_mean_s", 5400) == "1 h 30 min"
    assert shown("eta_error_median", 0.123) == "12 % of the wait"
    assert shown("eta_error_median", None) == "–"
