from jupyter_gpupool.scheduler.board import Board
from jupyter_gpupool.scheduler.model import PriorityClass, Settings, Usage
from jupyter_gpupool.scheduler.plan import plan
from jupyter_gpupool.scheduler.ranking import Ranking, class_value

NANO = 1_000_000_000
WEEK = 7 * 86400


def order(snapshot):
    board = Board(snapshot, 0)
    ranking = Ranking(board, snapshot.waiting, lambda work: not work.held)
    return [work.id for work in ranking]


def test_classes_before_shares_then_submit_time_then_id(pool):
    jobs = [
        pool.job(1, priority="low", submitted=1),
        pool.job(2, submitted=9),
        pool.job(3, submitted=5, user="bob"),
        pool.job(4, priority="high", submitted=20),
        pool.job(5, submitted=5, user="cat"),
    ]
    usage = Usage(by_group={"a": 50 * NANO})
    assert order(pool.snapshot(jobs, usage=usage)) == [4, 3, 5, 2, 1]


def test_sessions_come_first(pool):
    jobs = [pool.job(1, priority="urgent"), pool.session(2, priority="low", submitted=9)]
    assert order(pool.snapshot(jobs)) == [2, 1]


def test_the_group_that_used_less_of_what_it_is_owed_comes_first(pool):
    groups = [pool.group("a", 8), pool.group("b", 2)]
    jobs = [pool.job(1, group="b"), pool.job(2, group="a")]
    usage = Usage(by_group={"a": 2 * NANO, "b": 1 * NANO})
    assert order(pool.snapshot(jobs, groups=groups, usage=usage)) == [2, 1]
    heavy = [pool.group("a", 8), pool.group("b", 2, weight=3)]
    assert order(pool.snapshot(jobs, groups=heavy, usage=usage)) == [1, 2]


def test_shares_are_compared_exactly(pool):
    groups = [pool.group("a", 3), pool.group("b", 7)]
    jobs = [pool.job(1, group="b"), pool.job(2, group="a")]
    equal = Usage(by_group={"a": 3 * NANO // 10, "b": 7 * NANO // 10})
    assert order(pool.snapshot(jobs, groups=groups, usage=equal)) == [1, 2]
    one_nano = Usage(by_group={"a": 3 * NANO // 10, "b": 7 * NANO // 10 + 1})
    assert order(pool.snapshot(jobs, groups=groups, usage=one_nano)) == [2, 1]


def test_a_burst_counts_at_once(pool):
    groups = [pool.group("a", 4), pool.group("b", 4)]
    jobs = [pool.job(n, submitted=0) for n in range(1, 5)] + [
        pool.job(n, group="b", submitted=100) for n in range(5, 9)
    ]
    assert order(pool.snapshot(jobs, groups=groups)) == [1, 5, 2, 6, 3, 7, 4, 8]


def test_the_charge_of_a_class_counts_in_the_share(pool):
    groups = [pool.group("a", 8), pool.group("b", 8)]
    cards = pool.gpus(4)
    leases = [
        pool.lease(pool.job(1, 1, priority="high"), cards[:1], 60),
        pool.lease(pool.job(2, 1, group="b", priority="low"), cards[1:2], 60),
    ]
    jobs = [pool.job(3, group="a"), pool.job(4, group="b")]
    assert order(pool.snapshot(jobs, leases, groups=groups)) == [4, 3]


def test_users_of_a_group_share_it(pool):
    jobs = [pool.job(n, submitted=0) for n in (1, 2, 3)] + [pool.job(4, user="bob", submitted=50)]
    assert order(pool.snapshot(jobs)) == [1, 4, 2, 3]
    usage = Usage(by_user={("a", "ann"): NANO})
    assert order(pool.snapshot(jobs, usage=usage)) == [4, 1, 2, 3]


def test_inside_quota_comes_before_above_it(pool):
    groups = [pool.group("a", 1), pool.group("b", 4)]
    usage = Usage(by_group={"b": 100 * NANO})
    jobs = [pool.job(1), pool.job(2), pool.job(3, group="b"), pool.job(4, group="b")]
    assert order(pool.snapshot(jobs, groups=groups, usage=usage)) == [1, 3, 4, 2]


def test_the_head_of_a_group_decides_whether_it_is_inside_quota(pool):
    groups = [pool.group("a", 2), pool.group("b", 4)]
    jobs = [pool.job(1, 3), pool.job(2, 1), pool.job(3, group="b", submitted=99)]
    assert order(pool.snapshot(jobs, groups=groups)) == [3, 1, 2]


def test_groups_are_compared_at_the_children_of_the_common_ancestor(pool):
    groups = [
        pool.group("left", 0),
        pool.group("a", 4, parent="left"),
        pool.group("c", 4, parent="left"),
        pool.group("b", 8),
    ]
    jobs = [pool.job(1, group="a"), pool.job(2, group="b", submitted=9), pool.job(3, group="c", submitted=20)]
    usage = Usage(by_group={"a": 3 * NANO, "b": 2 * NANO})
    assert order(pool.snapshot(jobs, groups=groups, usage=usage)) == [2, 3, 1]


def test_a_group_with_children_has_its_own_queue(pool):
    groups = [pool.group("top", 4), pool.group("a", 4, parent="top")]
    jobs = [pool.job(1, group="top"), pool.job(2, group="a"), pool.job(3, group="top")]
    assert order(pool.snapshot(jobs, groups=groups)) == [1, 2, 3]


def test_nothing_owed_is_an_infinite_share_once_used(pool):
    groups = [pool.group("a", 0), pool.group("b", 1)]
    jobs = [pool.job(1, 0), pool.job(2, 0, group="b", submitted=9)]
    none = pool.snapshot(jobs, groups=groups)
    assert order(none) == [1, 2]
    used = pool.snapshot(jobs, groups=groups, usage=Usage(by_group={"a": 1, "b": 10 * NANO}))
    assert order(used) == [2, 1]


def test_age_lifts_by_one_step_and_never_into_a_restricted_class(pool):
    classes = {
        "low": PriorityClass("low", -100),
        "normal": PriorityClass("normal", 0),
        "urgent": PriorityClass("urgent", 1000, groups=frozenset({"a"})),
    }

    def value(priority, age):
        return class_value(pool.job(1, priority=priority, age=age), classes, WEEK)

    assert value("low", WEEK - 1) == -100
    assert value("low", WEEK) == 0
    assert value("low", 5 * WEEK) == 0
    assert value("normal", WEEK) == 0
    jobs = [pool.job(1, priority="low", age=WEEK), pool.job(2), pool.job(3, priority="low")]
    assert order(pool.snapshot(jobs, settings=Settings(age_step=WEEK))) == [1, 2, 3]


def test_what_takes_no_part_counts_for_nobody(pool):
    groups = [pool.group("a", 4), pool.group("b", 4)]
    jobs = [pool.job(1, held="by ann"), pool.job(2), pool.job(3, group="b", submitted=2)]
    assert order(pool.snapshot(jobs, groups=groups)) == [2, 3]


def test_work_of_no_group_counts_for_the_pool_itself(pool):
    works = [pool.job(1, group="pool", gpus=0), pool.job(2, group="b"), pool.session(3, group="pool", gpus=0)]
    groups = [pool.group("b", parent="a"), pool.group("a")]
    assert [start.work for start in plan(pool.snapshot(works, groups=groups), 0).starts] == [3, 1, 2]
