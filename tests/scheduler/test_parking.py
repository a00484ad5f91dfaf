from itertools import count

from jupyter_gpupool.scheduler.board import Board
from jupyter_gpupool.scheduler.lines import Cap, Lack, Line, Purse, Reach, Scope
from jupyter_gpupool.scheduler.model import (
    Gpu,
    Group,
    Node,
    Partition,
    Quota,
    Reason,
    Request,
    Snapshot,
    Work,
)
from jupyter_gpupool.scheduler.parking import Lane, Limit, Waiting, is_common
from jupyter_gpupool.scheduler.timeline import FOREVER, Profile

HOUR = 3600
NUMBERS = count(1)
BOARD = Board(
    Snapshot(
        nodes=(Node("node", 64_000, 512 * 1024),),
        gpus=tuple(Gpu(f"GPU-{index}", "node", index, "H100", 32 * 1024, "training") for index in range(8)),
        partitions={"training": Partition("training", frozenset({"job"}))},
        groups={name: Group(name, "pool", Quota({"gpu_milli": 4000})) for name in ("vision", "speech")},
        users={},
        priorities={},
        windows={},
        waiting=(),
        leases=(),
    ),
    0,
)


def waiting(rank, gpus=1, limit=HOUR, group="vision"):
    request = Request(gpus=gpus, cpus_milli=1000 * gpus, memory_mib=1024 * gpus)
    work = Work(next(NUMBERS), "job", "ada", group, "normal", 0, limit, request)
    return Waiting(rank, work, BOARD.options(work))


def line(free, owner="", what="lent", kind=Line, *more):
    profile = Profile(free)
    cap = Cap(Scope(), "gpu_milli", free, Reason.GROUP_QUOTA, what, owner)
    return kind(cap, profile, *more)


def lane():
    return Lane(tuple(option.shelf for option in waiting(0).options))


def in_lane(where, *works):
    for one in works:
        one.move((where.queue(one),))
    return works


def ranks(heads):
    return [rank for rank, _ in heads]


def test_works_of_one_shape_wait_in_one_queue_and_only_the_best_is_its_head():
    where = lane()
    second, first, large = in_lane(where, waiting(5), waiting(2), waiting(4, gpus=8))
    assert second.places == first.places != large.places
    assert first.places[0].head is first
    assert (first.places[0].cards, large.places[0].cards) == (1, 8)
    assert ranks(where.heads(-1)) == [2, 4]
    assert ranks(where.heads(2)) == [4]
    first.move(())
    assert ranks(where.heads(-1)) == [4, 5]


def test_the_next_in_a_queue_counts_as_tried_only_if_it_needs_no_less():
    where = lane()
    first, longer, shorter = in_lane(
        where, waiting(1), waiting(2, limit=HOUR + 60), waiting(3, limit=HOUR - 60)
    )
    (queue,) = first.places
    assert longer.places == shorter.places == (queue,)
    assert queue.tried
    first.move(())
    assert queue.head is longer
    assert queue.tried
    longer.move(())
    assert queue.head is shorter
    assert not queue.tried


def test_a_work_that_left_for_another_place_is_passed_over_when_its_turn_comes():
    where, other = lane(), Limit()
    first, gone, last = in_lane(where, waiting(1), waiting(2), waiting(3))
    (queue,) = first.places
    gone.move((other.queue(gone, Lack(line(0, "vision"), 1000)),))
    first.move(())
    assert queue.head is last


def test_a_limit_names_those_for_whose_heads_enough_may_be_free():
    small, large = waiting(1), waiting(2, gpus=4)
    where, bound = Limit(), line(0, "vision", "limit", Line, 500)
    small.move((where.queue(small, Lack(bound, 1000)),))
    large.move((where.queue(large, Lack(bound, 4000)),))
    assert where.ready(499) == []
    assert where.ready(500) == [*small.places]
    assert where.ready(3500) == [*small.places, *large.places]
    small.move(())
    assert where.ready(3500) == [*large.places]


def test_what_one_group_lacks_of_what_others_keep_is_not_what_another_lacks():
    one, other = waiting(1), waiting(2, group="speech")
    where, reach = Limit(), line(0, "", "lent", Reach, 0, [])
    for work in (one, other):
        work.move((where.queue(work, Lack(reach, 1000)),))
    assert one.places != other.places


def test_a_queue_that_waits_for_room_looks_on_at_a_limit_until_it_is_tried_again():
    where = Limit()
    (first,) = in_lane(lane(), waiting(1))
    (queue,) = first.places
    assert not queue.is_new
    where.look_on(queue, Lack(line(0), 1000))
    assert queue.is_new
    assert where.ready(999) == []
    assert where.ready(1000) == [queue]
    queue.lack = None
    assert where.ready(1000) == []


def test_only_what_the_whole_pool_lends_is_lacked_by_all_alike():
    assert is_common(Lack(line(0), 1000))
    assert not is_common(Lack(line(0, "vision", "limit"), 1000))
    assert not is_common(Lack(line(0, "", "lent", Reach, 0, []), 1000))
    assert not is_common(Lack(line(0, "", "budget", Purse, (FOREVER,), 1000, 0), 1000))
