"""States follow one another only as the tables say."""

from __future__ import annotations

import itertools
from dataclasses import FrozenInstanceError

import pytest

from jupyter_gpupool.ledger import IllegalTransition, JobState, LeaseState, SessionState
from jupyter_gpupool.ledger.records import JOB_TRANSITIONS, LEASE_TRANSITIONS, SESSION_TRANSITIONS

ENDS = "completed failed cancelled timed_out"
JOB_PATHS = {
    "queued": "held starting cancelled",
    "held": "queued cancelled",
    "starting": f"running stopping queued {ENDS}",
    "running": f"stopping queued {ENDS}",
    "stopping": f"stopping queued held {ENDS}",
    **dict.fromkeys(ENDS.split(), ""),
}
LEASE_PATHS = {"requested": "held releasing", "held": "releasing", "releasing": "free", "free": ""}
SESSION_PATHS = {"waiting": "held ended", "held": "releasing", "releasing": "ended", "ended": ""}


@pytest.mark.parametrize(
    ("table", "paths", "states"),
    [
        (JOB_TRANSITIONS, JOB_PATHS, JobState),
        (LEASE_TRANSITIONS, LEASE_PATHS, LeaseState),
        (SESSION_TRANSITIONS, SESSION_PATHS, SessionState),
    ],
)
def test_tables_are_complete(table, paths, states):
    assert set(table) == set(states)
    assert table == {states(state): {states(to) for to in paths[state].split()} for state in paths}


@pytest.mark.parametrize(("state", "to"), list(itertools.product(JobState, JobState)))
def test_a_job_moves_as_the_table_says(opened, state, to):
    job, _ = opened.running()
    object.__setattr__(job, "state", state)
    if to in JOB_TRANSITIONS[state]:
        assert job.moved(to).state is to
    else:
        with pytest.raises(IllegalTransition, match=f"job 1 is {state}: it cannot become {to}"):
            job.moved(to)


def test_every_state_is_waiting_live_or_ended():
    for state in JobState:
        assert [state.waiting, state.live, state.ended].count(True) == 1


def test_a_lease_passes_releasing_before_it_is_free(opened):
    _, lease = opened.running()
    with pytest.raises(IllegalTransition, match="lease 1 is held: it cannot become free"):
        lease.moved(LeaseState.FREE)
    assert lease.released(200, free=False).state is LeaseState.RELEASING
    freed = lease.released(200, free=True)
    assert (freed.state, freed.freed, freed.live) == (LeaseState.FREE, 200, False)


def test_records_are_immutable(opened):
    job, _ = opened.running()
    with pytest.raises(FrozenInstanceError):
        job.state = JobState.COMPLETED
