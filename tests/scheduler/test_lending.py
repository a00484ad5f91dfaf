"""Cards of sessions that are lent to jobs: windows, days, headroom, settling, hand-back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from jupyter_gpupool.scheduler.admission import dry_run, prospects
from jupyter_gpupool.scheduler.board import Board
from jupyter_gpupool.scheduler.dispatch import Dispatch
from jupyter_gpupool.scheduler.lending import Lender
from jupyter_gpupool.scheduler.model import Node, Placement, Reason, Settings, Snapshot
from jupyter_gpupool.scheduler.plan import fill, plan
from jupyter_gpupool.scheduler.reasons import explain
from tests.scheduler.lent import BY_DAY, GIB, NIGHT, WINDOWS, card, site


def started(snapshot: Snapshot, now: int) -> dict[int, list[str]]:
    """Return the cards of what starts, and make sure that the fast pass starts the same."""
    found = {one.work: [share.uuid for share in one.placement.gpus] for one in plan(snapshot, now).starts}
    assert {one.work for one in fill(snapshot, now).starts} == found.keys()
    return found


def expected(snapshot: Snapshot, now: int, work: int) -> int | None:
    return plan(snapshot, now).verdicts[work].expected_start


# -- windows


@pytest.mark.parametrize(("now", "limit", "starts"), [(99, 50, False), (100, 100, True), (100, 101, False)])
def test_work_that_cannot_resume_is_over_when_the_window_ends(
    pool: Any, now: int, limit: int, starts: bool
) -> None:
    assert bool(started(site(pool, [pool.job(1, limit=limit)]), now)) is starts


@pytest.mark.parametrize(
    ("now", "starts"), [(99, False), (100, True), (185, True), (186, False), (200, False)]
)
def test_resumable_work_needs_its_least_run_and_its_grace_before_the_hand_back(
    pool: Any, now: int, starts: bool
) -> None:
    job = pool.job(1, limit=1000, resumable=True, grace=5)
    assert bool(started(site(pool, [job]), now)) is starts


def test_a_short_job_too_needs_the_least_run_before_the_hand_back(pool: Any) -> None:
    assert started(site(pool, [pool.job(1, limit=3)]), 190)
    assert not started(site(pool, [pool.job(1, limit=3)]), 191)


def test_a_job_on_a_lent_card_leaves_at_the_hand_back(pool: Any) -> None:
    long = pool.job(1, limit=1000, resumable=True)
    snapshot = site(pool, [long])
    (start,) = plan(snapshot, 150).starts
    board = Board(snapshot, 150)
    assert board.end_of(long, start.placement, 150) == 200
    lease = pool.as_lease(long, start.placement, 150, 1150)
    assert board.limits.end_of(lease) == 200
    session = pool.session(2, gpus=2)
    lasting = replace(lease, resumable=False)  # nobody asks it to make room for the session
    assert expected(site(pool, [session], [lasting]), 150, 2) == 200


def test_the_hand_back_of_a_lease_that_overstays_is_not_the_next_one(pool: Any) -> None:
    lease = pool.lease(pool.job(1, limit=1000, resumable=True), card(pool, 0), 1150, start=150)
    assert Board(site(pool, leases=[lease]), 230).limits.end_of(lease) == 231


def test_what_is_booked_after_the_hand_back_is_not_in_the_way(pool: Any) -> None:
    long, session = pool.job(1, limit=1000, resumable=True), pool.session(9, limit=50)
    board = Board(site(pool, [long], cards=1), 0)
    placement = Placement(
        ("node1",), pool.lease(session, card(pool, 0), 50).placement.gpus, 1000, "development"
    )
    board.book(session, placement, 200, 250)
    found = board.earliest(long)
    assert found is not None
    assert found[0] == 100
    assert board.holds(long, found[1], 100)
    board.advance(100)
    board.floor.refresh(board.floor.cards["development-1-0"])
    assert isinstance(board.attempt(long), Placement)
    board.book(session, placement, 199, 200)
    assert not board.holds(long, found[1], 100)


def test_a_promise_waits_for_the_next_window_that_is_long_enough(pool: Any) -> None:
    windows = ((100, 130), (300, 400))
    snapshot = site(pool, [pool.job(1, limit=40)], windows=windows)
    assert [(one.work, one.start) for one in plan(snapshot, 0).promises] == [(1, 300)]


def test_cards_of_jobs_come_first_and_lent_ones_after_them(pool: Any) -> None:
    jobs = [pool.job(number, limit=50) for number in (1, 2)]
    assert started(site(pool, jobs, own=1), 100) == {1: ["training-2-0"], 2: ["development-1-0"]}


@pytest.mark.parametrize(
    ("partition", "starts"), [("development", True), ("training", True), ("other", False)]
)
def test_a_request_may_name_either_partition(pool: Any, partition: str, starts: bool) -> None:
    snapshot = site(pool, [pool.job(1, limit=50, partition=partition)])
    assert bool(started(snapshot, 100)) is starts


def test_jobs_without_cards_stay_out_of_a_lending_partition(pool: Any) -> None:
    job = pool.job(1, gpus=0, limit=50)
    (option,) = Board(site(pool, [job], own=1), 100).options(job)
    assert option.bay.partition == "training"


def test_a_job_for_the_night_gets_lent_cards_too(pool: Any) -> None:
    job = pool.job(1, limit=1000, resumable=True, window="night")
    snapshot = site(pool, [job], lend=BY_DAY)
    waits = plan(snapshot, 250)
    assert (waits.verdicts[1].reason, waits.verdicts[1].expected_start) == (Reason.OUTSIDE_WINDOW, 300)
    assert started(snapshot, 300)


# -- a card of its own


def test_a_job_enters_only_a_wholly_idle_card(pool: Any) -> None:
    session = pool.lease(pool.session(9, gpu_mib=GIB), card(pool, 0), 1000)
    snapshot = site(pool, [pool.job(1, gpu_mib=GIB, limit=50)], [session])
    assert started(snapshot, 100) == {1: ["development-1-1"]}


def test_a_job_that_asks_for_a_part_has_the_lent_card_to_itself(pool: Any) -> None:
    jobs = [pool.job(number, gpu_mib=4 * GIB, limit=50) for number in (1, 2, 3)]
    snapshot = site(pool, jobs)
    found = plan(snapshot, 100)
    assert [start.placement.gpus[0].uuid for start in found.starts] == ["development-1-0", "development-1-1"]
    assert {start.placement.gpus[0].mib for start in found.starts} == {4 * GIB}
    assert {start.placement.gpu_milli for start in found.starts} == {125}
    later = pool.after(snapshot, found, 100)
    assert not started(later, 100)
    session = pool.session(4, gpu_mib=GIB)
    assert not started(replace(later, waiting=(session,)), 100)
    assert expected(replace(later, waiting=(session,)), 100, 4) == 150


def test_on_cards_of_their_own_parts_share(pool: Any) -> None:
    jobs = [pool.job(number, gpu_mib=4 * GIB, limit=50) for number in (1, 2)]
    assert started(site(pool, jobs, own=1), 100) == {1: ["training-2-0"], 2: ["training-2-0"]}


def test_more_than_a_card_has_is_not_lent_as_a_card(pool: Any) -> None:
    assert not Board(site(pool), 100).options(pool.job(1, gpu_mib=33 * GIB))


# -- by day


@pytest.mark.parametrize(("now", "starts"), [(219, False), (220, True), (250, True), (299, True)])
def test_by_day_cards_are_lent_once_the_day_has_settled(pool: Any, now: int, starts: bool) -> None:
    job = pool.job(1, limit=1000, resumable=True)
    assert bool(started(site(pool, [job], lend=BY_DAY), now)) is starts
    assert started(site(pool, [job], lend=NIGHT), now) == {}


def test_by_day_only_what_can_resume_gets_lent_cards(pool: Any) -> None:
    assert not started(site(pool, [pool.job(1, limit=10)], lend=BY_DAY), 250)


def test_a_job_that_began_by_day_stays_through_the_window(pool: Any) -> None:
    job = pool.job(1, limit=1000, resumable=True)
    snapshot = site(pool, [job], lend=BY_DAY)
    (start,) = plan(snapshot, 250).starts
    assert Board(snapshot, 250).end_of(job, start.placement, 250) == 400


def test_without_any_window_lent_cards_are_never_handed_back(pool: Any) -> None:
    job = pool.job(1, limit=1000, resumable=True)
    snapshot = site(pool, [job], lend=BY_DAY, windows=())
    (start,) = plan(snapshot, 5).starts
    assert Board(snapshot, 5).end_of(job, start.placement, 5) == 1005


@pytest.mark.parametrize(
    ("held_mib", "headroom", "starts"),
    [(4 * GIB, 7, True), (4 * GIB, 8, False), (5 * GIB, 6, True), (5 * GIB, 7, False), (32 * GIB, 1, False)],
)
def test_the_headroom_stays_free_in_whole_slices(
    pool: Any, held_mib: int, headroom: int, starts: bool
) -> None:
    """Of two cards of 32 GiB, a session has part of one; a job would take the other. A slice is 4 GiB."""
    session = pool.lease(pool.session(9, gpu_mib=held_mib), card(pool, 0), 1000)
    job = pool.job(1, limit=1000, resumable=True)
    snapshot = site(pool, [job], [session], lend=replace(BY_DAY, headroom=headroom))
    assert bool(started(snapshot, 250)) is starts
    assert started(snapshot, 300), "in a window no headroom is kept"


def test_each_start_by_day_counts_for_the_next(pool: Any) -> None:
    jobs = [pool.job(number, limit=1000, resumable=True) for number in range(1, 5)]
    assert len(started(site(pool, jobs, lend=replace(BY_DAY, headroom=9), cards=4), 250)) == 2
    assert len(started(site(pool, jobs, lend=replace(BY_DAY, headroom=8), cards=4), 250)) == 3


def test_a_job_for_two_cards_leaves_the_headroom_beside_both(pool: Any) -> None:
    job = pool.job(1, gpus=2, limit=1000, resumable=True)
    assert started(site(pool, [job], lend=replace(BY_DAY, headroom=8), cards=3), 250)
    assert not started(site(pool, [job], lend=replace(BY_DAY, headroom=9), cards=3), 250)


def test_sessions_come_first_at_any_hour(pool: Any) -> None:
    works = [pool.job(1, limit=50, resumable=True), pool.session(2, gpu_mib=GIB, limit=500)]
    for now in (110, 250):
        assert started(site(pool, works, lend=BY_DAY, cards=1), now) == {2: ["development-1-0"]}


def test_a_session_that_takes_headroom_moves_a_promise_by_day(pool: Any) -> None:
    job = pool.job(1, limit=1000, resumable=True)
    groups, gpus = [pool.group("a"), pool.group("b")], pool.gpus(1, nodes=2, partition="development")
    base = site(pool, [job], lend=replace(BY_DAY, headroom=8), groups=groups)
    before = replace(base, gpus=gpus, nodes=tuple(Node(gpu.node, 64_000, 64 * GIB) for gpu in gpus))
    promised = plan(before, 200)
    assert [one.start for one in promised.promises] == [220]
    session = pool.session(2, gpu_mib=GIB, limit=500, user="bob", group="b")
    later = replace(before, waiting=(job, session), promises=promised.promises)
    after = pool.after(later, plan(later, 210), 210)
    moves = plan(after, 211).moves
    assert [(move.was, move.now, move.cause) for move in moves] == [(220, 300, "session 2")]


def test_each_promise_by_day_counts_for_the_next(pool: Any) -> None:
    jobs = [pool.job(number, limit=1000, resumable=True) for number in (1, 2)]
    snapshot = site(pool, jobs, lend=replace(BY_DAY, headroom=8))
    assert [(one.work, one.start) for one in plan(snapshot, 205).promises] == [(1, 220), (2, 300)]


def test_a_session_that_is_expected_counts_with_its_slices(pool: Any) -> None:
    session = pool.session(9, gpu_mib=5 * GIB)
    board = Board(site(pool, lend=replace(BY_DAY, headroom=4)), 205)
    room = board.floor.headrooms["development"].profile
    placement = pool.lease(session, card(pool, 0), 0).placement
    assert room.at(250) == 12
    board.book(session, placement, 240, 260)
    assert [room.at(time) for time in (239, 240, 259, 260)] == [12, 10, 10, 12]
    board.book(session, placement, 240, 260, -1)
    assert room.at(250) == 12
    board.start(session, placement)
    assert [room.at(time) for time in (205, 299, 305)] == [10, 10, 16]


def test_a_fast_pass_stops_when_only_the_headroom_is_left(pool: Any) -> None:
    jobs = [pool.job(number, limit=1000, resumable=True) for number in range(1, 31)]
    none = Settings(min_run_time=10, promises=0)
    dispatch = Dispatch(site(pool, jobs, lend=replace(BY_DAY, headroom=8), settings=none), 250)
    assert dispatch.run_fast()
    assert [start.work for start in dispatch.starts] == [1]
    assert dispatch.order == []


# -- estimates


def test_estimates_know_windows_days_and_hand_backs(pool: Any) -> None:
    none = Settings(min_run_time=10, promises=0)
    long = pool.job(1, limit=1000, resumable=True)
    short = pool.job(2, limit=60)
    assert expected(site(pool, [long, short], settings=none), 0, 1) == 100
    assert expected(site(pool, [long, short], settings=none), 0, 2) == 100
    assert expected(site(pool, [long, short], settings=none, cards=1), 0, 2) == 300
    assert expected(site(pool, [long], settings=none, lend=BY_DAY), 205, 1) == 220
    assert dry_run(site(pool, settings=none, lend=BY_DAY), 205, long).start == 220


def test_work_that_cannot_resume_does_not_hold_up_an_estimate_behind_it(pool: Any) -> None:
    none = Settings(min_run_time=10, promises=0)
    jobs = [pool.job(1, limit=90), pool.job(2, limit=90, resumable=True)]
    snapshot = site(pool, jobs, settings=none, lend=BY_DAY)
    assert [expected(snapshot, 205, number) for number in (1, 2)] == [300, 220]


def test_an_estimate_by_day_waits_until_a_session_leaves_enough(pool: Any) -> None:
    none = Settings(min_run_time=10, promises=0)
    sessions = [pool.lease(pool.session(9, gpu_mib=GIB), card(pool, 0), 280)]
    job = pool.job(1, limit=1000, resumable=True)
    lend = replace(BY_DAY, headroom=8)
    assert expected(site(pool, [job], sessions, lend=lend, settings=none), 230, 1) == 280


def test_work_that_never_gets_a_lent_card_has_no_estimate(pool: Any) -> None:
    assert expected(site(pool, [pool.job(1, limit=150)]), 0, 1) is None


def test_a_session_hears_when_a_lent_card_is_handed_back(pool: Any) -> None:
    lease = pool.lease(pool.job(1, limit=1000, resumable=True), card(pool, 0), 1150, start=150)
    (found,) = prospects(site(pool, leases=[lease], cards=1), 160, [pool.session(2)])
    assert found.verdict is not None
    assert found.verdict.expected_start == 200


# -- reasons


def message(snapshot: Snapshot, now: int, work: int) -> str:
    return explain(plan(snapshot, now).verdicts[work], snapshot).message


@pytest.mark.parametrize("owned", [100, 1])
def test_a_session_hears_which_job_leaves_for_it(pool: Any, owned: int) -> None:
    """What its group's jobs hold on lent cards is no matter to a session."""
    lent = pool.lease(pool.job(1, limit=1000, resumable=True, grace=20), card(pool, 0), 1110, start=110)
    snapshot = site(pool, [pool.session(2)], [lent], cards=1, groups=[pool.group("a", owned)])
    told = "Waits for job 1 of a, asked to stop and gone by 00:02 UTC."
    decided = plan(snapshot, 120)
    assert [stop.cause for stop in decided.stops] == ["session"]
    assert explain(decided.verdicts[2], snapshot).message == told
    asked = replace(snapshot, leases=(replace(lent, asked=120),), promises=decided.promises)
    assert message(asked, 125, 2) == told


def test_a_job_hears_when_cards_are_lent_next(pool: Any) -> None:
    hour = 3600
    busy = pool.lease(pool.job(9), pool.gpus(1, first=2), 5 * hour)
    windows = ((20 * hour, 32 * hour), (44 * hour, 56 * hour))
    snapshot = site(pool, [pool.job(1, limit=hour)], [busy], own=1, windows=windows)
    assert message(snapshot, 2 * hour, 1) == (
        "Waits for 1 card: 1 of 1 card in training is busy; the next frees at 05:00 UTC; "
        "development lends cards at 20:00 UTC."
    )
    lend = replace(BY_DAY, headroom=16, settle=hour)
    resumable = pool.job(1, limit=hour, resumable=True)
    by_day = site(pool, [resumable], [busy], own=1, windows=windows, lend=lend)
    assert "lends cards at 20:00 UTC" in message(by_day, 2 * hour, 1)
    settling = site(pool, [resumable], [busy], own=1, windows=windows, lend=replace(lend, headroom=0))
    assert "lends cards at 09:00 UTC" in message(settling, 32 * hour, 1)
    in_window = site(pool, [pool.job(1, 3, limit=hour)], [busy], own=1, windows=windows, cards=3)
    assert plan(in_window, 21 * hour).starts


# -- ending a lease sooner to try something


def test_a_lease_may_be_ended_sooner_and_put_back(pool: Any) -> None:
    lease = pool.lease(pool.job(1, limit=1000, resumable=True), card(pool, 0), 1150, start=150)
    session = pool.session(2)
    board = Board(site(pool, [session], [lease], cards=1, lend=replace(BY_DAY, headroom=4)), 160)
    room = board.floor.headrooms["development"].profile
    before = list(room.levels(0, 1000))

    def start() -> int | None:
        found = board.earliest(session)
        return found and found[0]

    assert start() == 200
    board.shorten(lease, 170)
    assert (start(), board.expected_end(lease)) == (170, 170)
    assert board.earliest(session, 171) is not None
    board.shorten(lease, 180)
    assert start() == 170
    board.shorten(lease, 165)
    assert start() == 165
    assert room.at(165) == 8
    board.lengthen(lease)
    assert (start(), board.expected_end(lease)) == (200, 200)
    assert [(first, last, free) for first, last, free in _joined(room.levels(0, 1000))] == before


def _joined(levels: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = []
    for first, last, free in levels:
        if found and found[-1][2] == free:
            found[-1] = found[-1][0], last, free
        else:
            found.append((first, last, free))
    return found


# -- the terms


def test_the_terms_of_a_job_day_by_day(pool: Any) -> None:
    lender = Lender(BY_DAY, WINDOWS[:2], Settings(min_run_time=10))
    resumable = pool.job(1, limit=1000, resumable=True, grace=5)
    assert [term[:3] for term in lender.terms(resumable, 150)] == [
        (150, 185, 200),
        (220, 299, 400),
        (300, 385, 400),
        (420, (1 << 62) - 15, 1 << 62),
    ]
    assert [term.by_day for term in lender.terms(resumable, 150)] == [False, True, False, True]
    plain = pool.job(2, limit=80)
    assert [tuple(term) for term in lender.terms(plain, 0)] == [
        (100, 120, 200, False),
        (300, 320, 400, False),
    ]


def test_the_edges_at_which_lending_changes() -> None:
    edges = [100, 200, 220, 300, 400, 420]
    by_day = Lender(BY_DAY, WINDOWS[:2], Settings())
    assert [by_day.next_edge(edge) for edge in edges] == [*edges[1:], None]
    night = Lender(NIGHT, WINDOWS[:2], Settings())
    assert [night.next_edge(time) for time in (0, 100, 200, 400)] == [100, 200, 300, None]
