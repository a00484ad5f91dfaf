"""Nodes that are drained, and who did what."""

from __future__ import annotations

from tests.service.granting import POLICY, Pool


def test_a_drained_node_takes_no_new_work_and_what_runs_goes_on(pool: Pool) -> None:
    job = pool.submit("bob", partition="training")
    pool.wait(job["id"], "running")
    drained = pool.done("root", "POST", "nodes/node2/drain", {"because": "New fans."})
    assert [one["id"] for one in drained["running"]] == [job["id"]]
    node = next(one for one in pool.done("bob", "GET", "pool")["nodes"] if one["name"] == "node2")
    assert (node["available"], node["because"]) == (False, "New fans.")
    waits = pool.submit("cy", partition="training")
    again = pool.done("root", "GET", f"jobs/{waits['id']}")
    assert again["state"] == "queued"
    assert pool.done("root", "GET", f"jobs/{job['id']}")["state"] == "running"
    assert pool.done("root", "DELETE", "nodes/node2/drain")["drained"] is False
    pool.wait(waits["id"], "running")
    assert pool.refused("root", "DELETE", "nodes/node2/drain") == (
        409,
        "node2 is not drained: it takes new work.",
    )
    assert pool.refused("root", "POST", "nodes/node9/drain", {})[0] == 404
    assert pool.refused("ada", "POST", "nodes/node2/drain", {})[0] == 403


def test_every_action_is_kept_with_who_did_it(pool: Pool) -> None:
    boost = pool.done(
        "grace", "POST", "boosts", {"group": "vision", "gpus": 1, "until": "1d", "because": "Due."}
    )
    pool.done("grace", "DELETE", f"boosts/{boost['id']}")
    pool.done("root", "POST", "nodes/node1/drain", {"because": "Fans."})
    pool.done("root", "DELETE", "nodes/node1/drain")
    pool.done("root", "POST", "policy", {"text": POLICY + "# once more\n", "apply": True})
    found = pool.done("root", "GET", "actions?limit=5")["actions"]
    assert [(one["by"], one["action"]) for one in found] == [
        ("root", "apply policy"),
        ("root", "undrain"),
        ("root", "drain"),
        ("grace", "end boost"),
        ("grace", "boost"),
    ]
    assert found[-1]["text"].startswith("vision gets 1 card more until ")
    assert found[-1]["text"].endswith(", out of lab. Due.")
    assert pool.refused("ada", "GET", "actions")[0] == 403
