"""Listeners miss nothing that is still in the ring, and are told when they did."""

from __future__ import annotations

import asyncio

from jupyter_gpupool.service import events
from jupyter_gpupool.service.events import Bus


def kinds(bus: Bus, last: int, user: str = "ada") -> list[str]:
    return [event.kind for event in bus.after(last, user)]


def test_from_where_one_left_off() -> None:
    bus = Bus(100)
    assert bus.last == 99
    for kind in ("a", "b", "c"):
        bus.publish(kind, {})
    assert kinds(bus, 99) == ["a", "b", "c"]
    assert kinds(bus, 101) == ["c"]
    assert kinds(bus, 102) == []


def test_private_events_are_for_their_owner() -> None:
    bus = Bus(1)
    bus.publish("progress", {}, owner="bob")
    bus.publish("job", {})
    assert kinds(bus, 0) == ["job"]
    assert kinds(bus, 0, "bob") == ["progress", "job"]


def test_who_was_away_too_long_is_told_to_look_anew() -> None:
    bus = Bus(1)
    for _ in range(events.RING + 1):
        bus.publish("job", {})
    assert kinds(bus, 0)[:2] == ["reset", "job"]
    assert len(kinds(bus, 0)) == events.RING + 1
    assert "reset" not in kinds(bus, 1)


def test_an_id_of_another_pool_means_a_reset() -> None:
    bus = Bus(100)
    assert kinds(bus, 5) == ["reset"]
    assert kinds(bus, 10**9) == ["reset"]


def test_the_form_of_one_event() -> None:
    bus = Bus(7)
    bus.publish("job", {"job": 1})
    assert bus.after(6, "ada")[0].encoded() == b'id: 7\nevent: job\ndata: {"job":1}\n\n'


def test_waiting_for_news() -> None:
    async def scenario() -> None:
        bus = Bus(1)
        waiting = [asyncio.create_task(bus.news(0, 10)) for _ in range(3)]
        await asyncio.sleep(0)
        bus.publish("job", {})
        await asyncio.wait_for(asyncio.gather(*waiting), 1)
        await asyncio.wait_for(bus.news(0, 10), 1)
        await bus.news(1, 0.01)
        late = asyncio.create_task(bus.news(1, 10))
        await asyncio.sleep(0)
        bus.close()
        await asyncio.wait_for(late, 1)

    asyncio.run(scenario())
