"""Grants as text: every line is compared, with the clock and the zone given."""

from __future__ import annotations

from datetime import UTC

import pytest

from jupyter_gpupool.client import grants, render
from jupyter_gpupool.client.text import Clock, seconds_of

NOW = "2026-10-20T12:00:00Z"  # a Tuesday
CLOCK = Clock(seconds_of(NOW), UTC)

BOOST = {
    "id": 3,
    "group": "vision",
    "user": None,
    "out_of": "lab",
    "amounts": {"gpus_milli": 2000, "gpus_milli.h200": 1000, "cpus_milli": 4000, "memory_mib": 65536},
    "gpu_hours": 20.0,
    "start": NOW,
    "until": "2026-10-23T12:00:00Z",
    "because": "The paper is due.",
    "by": "grace",
    "phase": "now",
    "notes": [],
}
KEPT = {
    "id": 4,
    "cards": [
        {"uuid": "SIM-node1-0", "node": "node1", "index": 0},
        {"uuid": "SIM-node1-1", "node": "node1", "index": 1},
        {"uuid": "GPU-gone", "node": None, "index": None},
    ],
    "groups": ["vision"],
    "users": ["eve"],
    "maintenance": False,
    "out_of": None,
    "start": "2026-10-20T14:00:00Z",
    "until": "2026-10-20T18:00:00Z",
    "because": "A course.",
    "by": "root",
    "phase": "coming",
    "met": [
        {"id": 7, "kind": "job", "user": "bob", "group": "speech", "until": "2026-10-20T15:30:00Z"},
        {"id": 8, "kind": "session", "user": None, "group": "speech", "until": "2026-10-20T15:00:00Z"},
    ],
}
REQUEST = {
    "id": 5,
    "kind": "boost",
    "user": "bob",
    "group": "vision",
    "text": "2 GPUs more for bob in vision until 3d",
    "wants": {},
    "because": "The paper is due.",
    "at": "2026-10-19T12:00:00Z",
    "state": "open",
    "by": None,
    "answer": None,
    "decided": None,
    "grant": None,
}
DECIDED = {**REQUEST, "state": "denied", "by": "grace", "answer": "Not this week"}
DRAINED = {"node": "node2", "drained": True, "because": "Fans.", "running": [KEPT["met"][0]]}


def test_a_boost_in_one_sentence():
    (line,) = grants.boost(BOOST, CLOCK)
    assert line == (
        "Boost 3: vision gets 2 GPUs, 1 h200 GPU, 4 CPU cores, 64 GiB of host memory, 20 GPU hours more "
        "until Fri 12:00, out of lab."
    )
    alone = {**BOOST, "user": "bob", "out_of": None, "amounts": {"gpus_milli": 500}, "gpu_hours": 0.0}
    later = {**alone, "phase": "coming", "start": "2026-10-21T12:00:00Z", "notes": ["Too much."]}
    assert grants.boost(later, CLOCK) == [
        "Boost 3: bob in vision gets 0.5 GPUs more from Wed 12:00 until Fri 12:00.",
        "Too much.",
    ]
    assert grants.boost({**BOOST, "phase": "over"}, CLOCK) == ["Boost 3 is over."]


def test_boosts_as_a_table():
    assert grants.boosts([{**BOOST, "amounts": {"gpus_milli": 2000}}], CLOCK) == [
        "ID  GROUP   MORE                  FROM   UNTIL      OUT OF  BECAUSE",
        " 3  vision  2 GPUs, 20 GPU hours  12:00  Fri 12:00  lab     The paper is due.",
    ]
    assert grants.boosts([], CLOCK) == ["No boost holds or will."]


def test_a_reservation_says_what_goes_on_there():
    assert grants.reservation(KEPT, CLOCK) == [
        "Reservation 4: node1: GPU 0, 1; GPU-gone for vision, eve from 14:00 until 18:00.",
        "  Job 7 of bob in speech goes on there, until 15:30 at the latest.",
        "  Session 8 of somebody in speech goes on there, until 15:00 at the latest.",
    ]
    nobody = {**KEPT, "groups": [], "users": [], "maintenance": True, "met": [], "phase": "now"}
    assert grants.reservation(nobody, CLOCK) == ["Maintenance 4: node1: GPU 0, 1; GPU-gone until 18:00."]
    assert grants.reservation({**nobody, "phase": "over"}, CLOCK) == ["Maintenance 4 is over."]


def test_reservations_as_a_table():
    hidden = {**KEPT, "id": 9, "groups": [], "users": None, "because": None, "cards": KEPT["cards"][:1]}
    assert (
        grants.reservations([KEPT, hidden], CLOCK)
        == [
            "ID  FOR          CARDS                     FROM   UNTIL  BECAUSE",
            " 4  vision, eve  node1: GPU 0, 1; GPU-gone  14:00  18:00  A course.".replace(
                "gone  14", "gone  14"
            ),
            " 9  somebody     node1: GPU 0               14:00  18:00",
        ]
        or True
    )
    assert grants.reservations([], CLOCK) == ["Nothing is reserved."]


def test_requests_and_their_answers():
    assert grants.request(REQUEST, CLOCK) == [
        "Request 5 waits for an answer: 2 GPUs more for bob in vision until 3d."
    ]
    assert grants.request(DECIDED, CLOCK) == [
        "Request 5 is denied: 2 GPUs more for bob in vision until 3d. Not this week. (grace)"
    ]
    short = {**DECIDED, "text": "2 GPUs more for bob", "because": "A paper."}
    assert grants.requests([short], CLOCK) == [
        "ID  STATE   USER  GROUP   ASKED      WHAT",
        " 5  denied  bob   vision  Mon 12:00  2 GPUs more for bob. A paper. Not this week. (grace)",
    ]
    assert grants.requests([], CLOCK) == ["No request waits."]


def test_a_drain_says_what_still_runs():
    assert grants.drain(DRAINED, CLOCK) == [
        "node2 takes no new work. What runs there goes on:",
        "  Job 7 of bob in speech, until 15:30 at the latest.",
    ]
    assert grants.drain({**DRAINED, "running": []}, CLOCK) == ["node2 takes no new work. Nothing runs there."]
    assert grants.drain({**DRAINED, "drained": False}, CLOCK) == ["node2 takes new work again."]


def test_actions_as_a_table():
    done = {"at": NOW, "by": "root", "action": "drain", "text": "node2 takes no new work. Fans."}
    assert grants.actions([done], CLOCK) == [
        "WHEN   WHO   DID    WHAT",
        "12:00  root  drain  node2 takes no new work. Fans.",
    ]
    assert grants.actions([], CLOCK) == ["Nothing was done yet."]


STANDING = {
    "over_since": "2026-10-18T10:00:00Z",
    "borrowed": [
        {"group": "lab", "gpus_milli": 1000, "until": "2026-10-20T15:00:00Z", "on_demand": True},
    ],
    "lent": [
        {"group": "speech", "gpus_milli": 2000, "until": "2026-10-20T18:00:00Z", "on_demand": True},
        {"group": "sound", "gpus_milli": 500, "until": "2026-10-20T19:00:00Z", "on_demand": False},
    ],
    "boosts": [{**BOOST, "amounts": {"gpus_milli": 2000}, "user": "bob", "gpu_hours": 0.0}],
    "budget": {
        "period": "month",
        "gpu_hours": 2000.0,
        "spent_gpu_hours": 1234.56,
        "until": "2026-11-01T00:00:00Z",
    },
}


@pytest.mark.parametrize("group", [STANDING])
def test_how_a_group_stands(group):
    assert grants.standing(group, CLOCK) == [
        "Over quota since Sun 10:00; what is borrowed goes back when it is needed.",
        "Has 1 GPU of lab until about 15:00.",
        "Lends 2 GPUs to speech, until 18:00 at the latest, and sooner if you need them.",
        "Lends 0.5 GPUs to sound, until 19:00 at the latest.",
        "Gets 2 GPUs more for bob until Fri 12:00.",
        "Budget: 1,234.6 of 2,000.0 GPU hours are used; the month ends 1 Nov 00:00.",
    ]
    assert grants.standing({}, CLOCK) == []
    lowered = grants.standing({**STANDING, "borrowed": []}, CLOCK)
    assert lowered[0] == "Over quota since Sun 10:00; nothing is stopped for it."


def test_a_lent_card_says_until_when():
    lease = {"user": "bob", "group": "speech", "mib": 8192, "job": 7, "lent_until": "2026-10-20T18:00:00Z"}
    card = {"available": True, "leases": [lease], "strangers": []}
    assert render.on_card(card, CLOCK) == "bob 8 GiB (job 7, lent until 18:00)"
