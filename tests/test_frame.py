"""Policy and cards in the scheduler's words."""

from __future__ import annotations

from jupyter_gpupool.devices.simulated import SimulatedPool
from jupyter_gpupool.frame import Boost, Frame, Grants, frame_of
from jupyter_gpupool.policy.load import load_policy
from jupyter_gpupool.scheduler.model import Reservation
from jupyter_gpupool.scheduler.words import time_text

POLICY = load_policy("""
timezone: Europe/Berlin
calendars: {night: {weekly: ["Mon-Sun 22:00-06:00"]}}
partitions:
  development: {gpus: ["node1:*"], for: [session], cpu_overcommit: 2.0}
  training: {gpus: ["node2:0-1"], for: [job]}
groups:
  science: {quota: {gpus: 4}}
  vision: {parent: science, quota: {gpus: 6, cpus: 40, gpus.h200: 2}, limit: {gpus: 12}, lend: {gpus: 3},
           weight: 2, user: {gpus: 2, running_jobs: 4}}
users: {bob: {gpus: 4}}
priorities: {normal: {value: 0}, high: {value: 100, charge: 2, groups: [vision], running_jobs: 1}}
jobs: {promises: 7}
""")
NOW = 1_792_886_400  # 2026-10-25 00:00 UTC: the night on which clocks go back in Berlin
FRAME = frame_of(POLICY, SimulatedPool.parse("2x3x8GiB"), {"SIM-node1-0": "It is lost."}, NOW, 2, "here")


def test_cards_have_their_partition_and_their_health() -> None:
    assert [(gpu.uuid, gpu.partition) for gpu in FRAME.gpus] == [
        ("SIM-node1-0", "development"),
        ("SIM-node1-1", "development"),
        ("SIM-node1-2", "development"),
        ("SIM-node2-0", "training"),
        ("SIM-node2-1", "training"),
    ]
    assert [gpu.available for gpu in FRAME.gpus] == [False, True, True, True, True]
    assert FRAME.gpus[0].unavailable_because == "It is lost."
    assert FRAME.partitions["development"].cpu_overcommit_milli == 2000


def test_times_are_written_as_the_sites_clocks_show_them() -> None:
    assert time_text(NOW, NOW, FRAME.settings.zone) == "02:00 CEST"


def test_a_group_has_its_quota_its_limit_and_what_it_lends() -> None:
    quota = FRAME.groups["vision"].quota
    assert quota.quota == {"gpu_milli": 6000, "cpus_milli": 40000, "gpu_milli.h200": 2000}
    assert (quota.limit, quota.lend) == ({"gpu_milli": 12000}, {"gpu_milli": 3000})
    assert (FRAME.groups["vision"].parent, FRAME.groups["science"].parent) == ("science", "pool")
    assert (FRAME.groups["vision"].weight, FRAME.groups["vision"].user.gpu_milli) == (2, 2000)
    assert FRAME.users["bob"].gpu_milli == 4000


def test_priorities_and_settings() -> None:
    high = FRAME.priorities["high"]
    assert (high.charge_milli, high.groups, high.running_jobs) == (2000, {"vision"}, 1)
    assert (FRAME.settings.promises, FRAME.settings.slots, FRAME.settings.host) == (7, 2, "here")


def test_windows_reach_past_every_job_and_edges_follow_each_other() -> None:
    night = FRAME.windows["night"]
    assert night[0][1] - NOW == 5 * 3600  # until 06:00 in winter time
    assert night[-1][0] > NOW + 50 * 86400
    edges = []
    at: int | None = NOW
    while len(edges) < 3:
        at = FRAME.next_edge(at or 0)
        edges.append(at)
    assert edges == [night[0][1], night[1][0], night[1][1]]


def test_grants_change_quotas_nodes_and_edges_while_they_last() -> None:
    boost = Boost("vision", {"gpu_milli": 2000}, NOW - 60, NOW + 60, giver="science")
    later = Boost("vision", {"gpu_milli": 9000}, NOW + 60, NOW + 120)
    kept = Reservation(1, frozenset({"SIM-node1-1"}), NOW + 30, NOW + 90, frozenset({"vision"}))
    gone = Reservation(2, frozenset({"SIM-node1-1"}), NOW - 90, NOW, frozenset({"vision"}))
    grants = Grants((boost, later), (kept, gone), {"node2": "New fans are fitted."})
    frame = frame_of(POLICY, SimulatedPool.parse("2x3x8GiB"), {}, NOW, 2, "here", grants)
    assert frame.groups["vision"].quota.quota["gpu_milli"] == 8000
    assert frame.groups["vision"].quota.limit == {"gpu_milli": 14000}
    assert frame.groups["science"].quota.quota["gpu_milli"] == 2000
    assert frame.reservations == (kept,)
    assert [(node.name, node.available) for node in frame.nodes] == [("node1", True), ("node2", False)]
    assert frame.nodes[1].unavailable_because == "New fans are fitted."
    assert [frame.next_edge(NOW), frame.next_edge(NOW + 30), frame.next_edge(NOW + 60)] == [
        NOW + 30,
        NOW + 60,
        NOW + 90,
    ]


def boosted(*boosts: Boost) -> Frame:
    tree = load_policy("""
partitions: {all: {gpus: ["*:*"], for: [session, job]}}
groups:
  lab: {quota: {gpus: 1}, limit: {gpus: 4}}
  vision: {parent: lab, quota: {gpus: 2}, limit: {gpus: 3, cpus: 9}, user: {gpus: 1}}
  speech: {quota: {gpus: 3}}
users: {bob: {gpus: 2}}
""")
    return frame_of(tree, SimulatedPool.parse("1x8x8GiB"), {}, NOW, None, "here", Grants(boosts))


def quotas(frame: Frame, resource: str = "gpu_milli") -> dict[str, tuple[int, int | None]]:
    found = {name: group.quota for name, group in frame.groups.items()}
    return {name: (q.quota.get(resource, 0), (q.limit or {}).get(resource)) for name, q in found.items()}


def test_a_boost_raises_the_limits_above_it_too() -> None:
    frame = boosted(Boost("vision", {"gpu_milli": 2000}, NOW, NOW + 1))
    assert quotas(frame) == {"lab": (1000, 6000), "vision": (4000, 5000), "speech": (3000, None)}
    assert frame.groups["vision"].quota.limit == {"gpu_milli": 5000, "cpus_milli": 9000}


def test_what_a_group_gives_away_it_is_not_owed() -> None:
    frame = boosted(Boost("vision", {"gpu_milli": 2000}, NOW, NOW + 1, giver="speech"))
    assert quotas(frame) == {"lab": (1000, 6000), "vision": (4000, 5000), "speech": (1000, None)}


def test_what_comes_from_above_stays_within_the_limits_there() -> None:
    frame = boosted(Boost("vision", {"gpu_milli": 1000}, NOW, NOW + 1, giver="lab"))
    assert quotas(frame) == {"lab": (0, 4000), "vision": (3000, 4000), "speech": (3000, None)}


def test_a_users_boost_raises_the_users_cards_and_nothing_of_the_groups() -> None:
    spans = {"start": NOW, "end": NOW + 1}
    frame = boosted(
        Boost("vision", {"gpu_milli": 500}, **spans, user="ada"),
        Boost("vision", {"gpu_milli": 500}, **spans, user="bob"),
        Boost("speech", {"gpu_milli": 500}, **spans, user="cy"),
    )
    assert {name: limits.gpu_milli for name, limits in frame.users.items()} == {"bob": 2500, "ada": 1500}
    assert quotas(frame) == quotas(boosted())
