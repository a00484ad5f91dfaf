import pytest

from jupyter_gpupool.scheduler.model import Gpu, Node, Partition
from jupyter_gpupool.scheduler.placement import Card, choose_linked, whole_nodes
from jupyter_gpupool.scheduler.plan import plan

GIB = 1024


def placed(snapshot):
    return {start.work: start.placement for start in plan(snapshot, 0).starts}


def uuids(placement):
    return [share.uuid for share in placement.gpus]


def test_sessions_go_to_the_fullest_card_that_still_fits(pool):
    cards = pool.gpus(3)
    leases = [
        pool.lease(pool.session(1, gpu_mib=8 * GIB), cards[:1], 900),
        pool.lease(pool.session(2, gpu_mib=20 * GIB), cards[1:2], 900),
    ]
    waiting = [
        pool.session(3, gpu_mib=12 * GIB),
        pool.session(4, gpu_mib=13 * GIB),
        pool.session(5, gpu_mib=12 * GIB),
    ]
    starts = placed(pool.snapshot(waiting, leases, gpus=cards))
    assert uuids(starts[3]) == [cards[1].uuid]
    assert uuids(starts[4]) == [cards[0].uuid]
    assert uuids(starts[5]) == [cards[2].uuid]


def test_jobs_by_memory_share_cards_but_never_with_sessions(pool):
    cards = pool.gpus(3)
    leases = [
        pool.lease(pool.session(1, gpu_mib=4 * GIB), cards[:1], 900),
        pool.lease(pool.job(2, gpu_mib=4 * GIB), cards[1:2], 900),
    ]
    waiting = [pool.job(3, gpu_mib=4 * GIB), pool.session(4, gpu_mib=4 * GIB)]
    starts = placed(pool.snapshot(waiting, leases, gpus=cards))
    assert uuids(starts[3]) == [cards[1].uuid]
    assert uuids(starts[4]) == [cards[0].uuid]
    full = [pool.job(5, gpu_mib=29 * GIB)]
    assert uuids(placed(pool.snapshot(full, leases, gpus=cards))[5]) == [cards[2].uuid]


@pytest.mark.parametrize(("mib", "starts"), [(28 * GIB, True), (28 * GIB + 1, False), (28 * GIB - 1, True)])
def test_fitting_is_decided_to_the_mib(pool, mib, starts):
    cards = pool.gpus(1)
    leases = [pool.lease(pool.job(1, gpu_mib=4 * GIB), cards, 900)]
    assert (5 in placed(pool.snapshot([pool.job(5, gpu_mib=mib)], leases, gpus=cards))) is starts


def test_a_whole_card_is_shared_with_nobody(pool):
    cards = pool.gpus(1)
    small = pool.lease(pool.job(1, gpu_mib=256), cards, 900)
    whole = pool.lease(pool.job(2), cards, 900)
    assert not placed(pool.snapshot([pool.job(5)], [small], gpus=cards))
    assert not placed(pool.snapshot([pool.job(5, gpu_mib=256)], [whole], gpus=cards))
    assert not placed(pool.snapshot([pool.session(5, gpu_mib=256)], [whole], gpus=cards))


def test_a_policy_slice_is_its_part_of_the_card_chosen(pool):
    small = pool.gpus(1, model="S")
    large = (Gpu("L", "node1", 1, "L", 80 * GIB, "training"),)
    waiting = [pool.session(1, share=(1, 8), gpu_types=("L",))]
    starts = placed(pool.snapshot(waiting, gpus=small + large))
    assert starts[1].gpus[0].mib == 10 * GIB
    assert starts[1].gpu_milli == 125


def test_whole_cards_are_linked_and_of_the_node_with_the_fewest_idle(pool):
    cards = [
        Gpu(f"{node}-{index}", node, index, "SIM", pool.card, "training", link)
        for node, links in (("n1", "aabb"), ("n2", "abab"), ("n3", "aaaa"))
        for index, link in enumerate(links)
    ]
    busy = [pool.lease(pool.job(1), [cards[4]], 900), pool.lease(pool.job(2), [cards[0]], 900)]
    starts = placed(pool.snapshot([pool.job(5, 2)], busy, gpus=cards))
    assert uuids(starts[5]) == ["n1-2", "n1-3"]
    starts = placed(pool.snapshot([pool.job(5, 3)], busy, gpus=cards))
    assert uuids(starts[5]) == ["n3-0", "n3-1", "n3-2"]


def test_unlinked_cards_of_one_node_serve_when_no_linked_ones_are_free(pool):
    cards = [Gpu(f"g{i}", "n1", i, "SIM", pool.card, "training", link) for i, link in enumerate("aabb")]
    starts = placed(pool.snapshot([pool.job(5, 3)], gpus=cards))
    assert uuids(starts[5]) == ["g0", "g1", "g2"]


def test_choosing_linked_cards_leaves_large_groups_whole():
    cards = [Card(Gpu(f"g{i}", "n", i, "SIM", 1, "p", link), ("job",)) for i, link in enumerate("aaaabb")]
    chosen, linked = choose_linked(cards, 2)
    assert ([card.gpu.uuid for card in chosen], linked) == (["g4", "g5"], True)


def test_cards_of_two_nodes_are_not_mixed(pool):
    cards = pool.gpus(2, nodes=2)
    busy = [pool.lease(pool.job(1), [cards[0]], 900), pool.lease(pool.job(2), [cards[2]], 900)]
    assert not placed(pool.snapshot([pool.job(5, 2)], busy, gpus=cards))


def test_more_cards_than_a_node_has_are_whole_nodes_all_or_none(pool):
    cards = pool.gpus(2, nodes=3)
    free = placed(pool.snapshot([pool.job(5, 4, cpus_milli=64_000)], gpus=cards))
    assert free[5].nodes == ("node1", "node2")
    assert len(free[5].gpus) == 4
    busy = [pool.lease(pool.job(1), [cards[0]], 900)]
    assert placed(pool.snapshot([pool.job(5, 4)], busy, gpus=cards))[5].nodes == ("node2", "node3")
    busy.append(pool.lease(pool.job(2), [cards[2]], 900))
    assert not placed(pool.snapshot([pool.job(5, 4)], busy, gpus=cards))


def test_whole_nodes_of_different_sizes_must_add_up():
    assert whole_nodes([0, 1, 2], [8, 4, 8], 16) == [0, 2]
    assert whole_nodes([0, 1], [8, 4], 10) is None


def test_cpus_and_memory_of_the_node_count(pool):
    cards = pool.gpus(2, nodes=2)
    nodes = [Node("node1", 4_000, 64 * GIB), Node("node2", 16_000, 256 * GIB)]
    starts = placed(pool.snapshot([pool.job(1, cpus_milli=5_000)], gpus=cards, nodes=nodes))
    assert starts[1].nodes == ("node2",)
    starts = placed(pool.snapshot([pool.job(1, memory_mib=65 * GIB)], gpus=cards, nodes=nodes))
    assert starts[1].nodes == ("node2",)
    two = [pool.job(1, cpus_milli=10_000), pool.job(2, cpus_milli=10_000)]
    assert set(placed(pool.snapshot(two, gpus=cards, nodes=nodes))) == {1}


def test_cpu_overcommit_of_a_partition(pool):
    snapshot = pool.snapshot(
        [pool.session(n, gpu_mib=GIB, cpus_milli=4_000) for n in (1, 2, 3)],
        gpus=pool.gpus(1),
        nodes=[Node("node1", 4_000, 64 * GIB)],
    )
    assert set(placed(snapshot)) == {1}
    twice = {"training": Partition("training", frozenset({"session"}), cpu_overcommit_milli=2000)}
    doubled = type(snapshot)(**{**{f: getattr(snapshot, f) for f in snapshot.__slots__}, "partitions": twice})
    assert set(placed(doubled)) == {1, 2}


def test_work_without_a_gpu_goes_to_the_fullest_node_that_fits(pool):
    cards = pool.gpus(1, nodes=2)
    nodes = [Node("node1", 16_000, 64 * GIB), Node("node2", 8_000, 64 * GIB)]
    starts = placed(pool.snapshot([pool.job(1, 0, cpus_milli=4_000)], gpus=cards, nodes=nodes))
    assert starts[1].nodes == ("node2",)
    assert starts[1].gpus == ()
    assert starts[1].gpu_milli == 0


def test_a_machine_without_cards_still_runs_cpu_work(pool):
    snapshot = pool.snapshot(
        [pool.job(1, 0)], gpus=(), nodes=[Node("here", 2_000, GIB)], kinds={"all": ("job",)}
    )
    assert placed(snapshot)[1].nodes == ("here",)


def test_types_and_partitions_are_kept(pool):
    cards = pool.gpus(1, model="A100-SXM4-80GB") + pool.gpus(1, partition="fast", model="H100", first=2)
    waiting = [
        pool.job(1, gpu_types=("h100",)),
        pool.job(2, partition="training"),
        pool.job(3, gpu_types=("h100", "a100")),
    ]
    starts = placed(pool.snapshot(waiting, gpus=cards))
    assert starts[1].partition == "fast"
    assert starts[2].partition == "training"
    assert 3 not in starts


def test_purpose_of_partitions(pool):
    cards = pool.gpus(1, partition="development") + pool.gpus(1, partition="training", first=2)
    kinds = {"development": ("session",), "training": ("job",)}
    starts = placed(pool.snapshot([pool.job(1), pool.session(2), pool.job(3)], gpus=cards, kinds=kinds))
    assert starts[1].partition == "training"
    assert starts[2].partition == "development"
    assert 3 not in starts
