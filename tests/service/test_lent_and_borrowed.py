"""Groups say whom they lend to and borrow from, and since when they are over quota."""

from __future__ import annotations

from tests.service.granting import Pool


def later(pool: Pool) -> str | None:
    """Return since when a group is over quota, by what is said a minute later."""
    pool.ahead += 60
    return pool.group("cy", "speech")["over_since"]


def test_a_group_that_borrows_says_so_and_so_does_the_one_that_lends(pool: Pool) -> None:
    job = pool.submit("cy", resources={"gpus": 4, "cpus": 1, "mem": "256MiB"}, time="1h", resumable=True)
    pool.wait(job["id"], "running")
    speech = pool.group("cy", "speech")
    ends = pool.done("cy", "GET", f"jobs/{job['id']}")["expires_at"]
    assert speech["borrowed"] == [{"group": "lab", "gpus_milli": 1000, "until": ends, "on_demand": True}]
    lab = pool.group("grace", "lab")
    assert lab["lent"] == [{"group": "speech", "gpus_milli": 1000, "until": ends, "on_demand": True}]
    assert (lab["over_since"], lab["borrowed"], pool.group("bob", "vision")["lent"]) == (None, [], [])
    since = speech["over_since"]
    while since != (since := later(pool)):  # until it is written down
        assert pool.ahead < 600, "it begins anew all the time"
    assert since is not None
    boost = pool.done("root", "POST", "boosts", {"group": "speech", "gpus": 1, "until": "1h"})
    assert pool.group("cy", "speech")["over_since"] is None
    assert pool.group("cy", "speech")["boosts"][0]["id"] == boost["id"]
