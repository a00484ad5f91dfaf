"""What waits is sorted in once, and follows those who come and go."""

import random
from dataclasses import replace

from jupyter_gpupool.scheduler.queued import Queued, takes_part
from tests.benchmarks import large_pool as bench


def sorted_in(queued):
    return (
        {key: [work for _, _, work in entries] for key, entries in queued.alike.items()},
        {group: [work for _, _, work in entries] for group, entries in queued.of_group.items()},
    )


def test_who_comes_goes_and_changes_is_sorted_in_as_if_all_were_new():
    draw = random.Random(1)
    works = list(bench.everything(jobs=80, groups=5, nodes=8).waiting)
    kept = Queued()
    for _ in range(20):
        waiting = draw.sample(works, 40)
        waiting[0] = replace(waiting[0], held="by ann")
        waiting[1] = replace(waiting[1], limit=waiting[1].limit + 60)
        kept.turn_to(waiting)
        fresh = Queued()
        fresh.turn_to(waiting)
        assert sorted_in(kept) == sorted_in(fresh)
        assert {work.id for work in kept.fitting(lambda _: bench.DAY * 30)} == {
            work.id for work in waiting if takes_part(work)
        }


def test_only_those_are_found_who_last_no_longer_than_there_is_room_for_what_they_ask():
    works = list(bench.big_snapshot(jobs=60, groups=3, nodes=2).waiting)
    queued = Queued()
    queued.turn_to(works)
    found = queued.fitting(lambda request: bench.DAY if request.gpus == 1 else -1)
    expected = {work.id for work in works if work.request.gpus == 1 and work.limit <= bench.DAY}
    assert {work.id for work in found} == expected
    assert expected


def test_of_a_group_those_come_first_who_ask_for_the_fewest_cards():
    queued = Queued()
    queued.turn_to(bench.big_snapshot(jobs=60, groups=3, nodes=2).waiting)
    for entries in queued.of_group.values():
        cards = [work.request.gpus for _, _, work in entries]
        assert cards == sorted(cards)
