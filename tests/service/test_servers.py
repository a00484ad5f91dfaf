"""A server's lease lives with its attempt; what nobody wants any more ends; nothing ends on suspicion."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from jupyter_gpupool.client.home import Home
from jupyter_gpupool.devices.simulated import SimulatedPool
from jupyter_gpupool.engines.base import EngineError
from jupyter_gpupool.ledger import LedgerUnavailable
from jupyter_gpupool.ledger.records import NewSession, SessionRecord
from jupyter_gpupool.scheduler.model import Request
from jupyter_gpupool.service import controller, release, servers
from jupyter_gpupool.service.config import ServiceConfig
from jupyter_gpupool.service.core import Service, open_service
from jupyter_gpupool.service.servers import key_of
from tests.service.fake_engine import Clock, FakeEngine


def begin(engine: FakeEngine, session: SessionRecord) -> str:
    """The Hub's spawner starts a session's server; return the attempt."""
    return engine.begin(key_of(session)).key


def asked_to_end(engine: FakeEngine) -> list[str]:
    """The attempts that the engine was asked to end."""
    return [key for key, _, _ in engine.stopped]


class Hub:
    """A Hub that knows some servers, or says nothing."""

    def __init__(self) -> None:
        self.servers: dict[str, set[str]] | None = {}

    async def __call__(self) -> dict[str, set[str]] | None:
        return self.servers


Scenario = Callable[[Service], Awaitable[None]]


@pytest.fixture
def hub() -> Hub:
    return Hub()


@pytest.fixture
def play(
    home: Home, engine: FakeEngine, clock: Clock, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Open a service of one card, let a scenario happen, close it."""
    monkeypatch.setattr(controller, "RETRY_S", 0.01)
    monkeypatch.setattr(release, "CHECK_S", 0.01)
    monkeypatch.setattr(servers, "LOOK_S", 3600)

    def run(scenario: Scenario, *, boot: str = "boot") -> None:
        async def whole() -> None:
            async with AsyncExitStack() as stack:
                service = await open_service(
                    stack,
                    ServiceConfig(home, "1x1x8GiB", boot_id=boot),
                    clock=clock,
                    monotonic=clock,
                    pool=SimulatedPool.parse("1x1x8GiB"),
                    engine=engine,  # type: ignore[arg-type]
                    known_servers=hub,
                )
                await asyncio.wait_for(scenario(service), 20)

        asyncio.run(whole())

    return run


def add(service: Service, server: str = "ada/", mib: int = 4096) -> SessionRecord:
    user = server.partition("/")[0]
    request = Request(gpu_mib=mib, share=(mib, 8192)) if mib < 8192 else Request(gpus=1)
    return service.servers.add(NewSession(user, "everyone", "server", request, 7200, server=server))


def state(service: Service, session: SessionRecord) -> tuple[str, str]:
    now = service.ledger.sessions[session.id]
    return now.state.value, now.reason


async def until(look: Callable[[], Any], wanted: Any) -> None:
    while look() != wanted:
        await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ({"exit_code": 3}, "The server ended with exit code 3."),
        ({"exit_code": None, "signal": 9}, "The server ended by signal 9."),
        ({"cause": "limit"}, "Its time is over."),
        ({"oom": True, "signal": 9}, "needed more memory than its slice"),
        ({"cause": "start", "message": "No such program."}, "No such program."),
        ({"cause": "lost"}, "killed together with the process that watched it"),
    ],
)
def test_its_end_frees_its_lease_and_says_why(play: Any, engine: FakeEngine, end: Any, reason: str) -> None:
    async def scenario(service: Service) -> None:
        session = add(service)
        assert session.state.value == "held"
        engine.end(begin(engine, session), **end)
        found, said = state(service, session)
        assert (found, reason in said, service.ledger.held()) == ("ended", True, ())

    play(scenario)


def test_a_lease_is_free_only_when_the_last_process_is_gone(play: Any, engine: FakeEngine) -> None:
    async def scenario(service: Service) -> None:
        session = add(service)
        key = begin(engine, session)
        engine.end(key, tree_gone=False)
        assert state(service, session)[0] == "releasing"
        assert len(service.ledger.held()) == 1
        engine.end(key, tree_gone=True)
        assert (state(service, session)[0], service.ledger.held()) == ("ended", ())

    play(scenario)


def test_an_end_that_cannot_be_written_is_written_later(
    play: Any, engine: FakeEngine, monkeypatch: Any
) -> None:
    async def scenario(service: Service) -> None:
        session = add(service)
        really, refusals = service.ledger.end_session, [LedgerUnavailable("The disk is full.")]

        def full(*args: Any, **more: Any) -> Any:
            if refusals:
                raise refusals.pop()
            return really(*args, **more)

        monkeypatch.setattr(service.ledger, "end_session", full)
        engine.end(begin(engine, session))
        assert state(service, session)[0] == "held"
        await until(lambda: state(service, session)[0], "ended")

    play(scenario)


def test_ending_it_ends_the_server_first(play: Any, engine: FakeEngine) -> None:
    async def scenario(service: Service) -> None:
        session = add(service)
        key = begin(engine, session)
        await service.servers.end(session, "Enough.")
        assert asked_to_end(engine) == [key]
        assert (state(service, session), len(service.ledger.held())) == (("releasing", "Enough."), 1)
        engine.end(key, cause="cancel", signal=15)
        assert (state(service, session), service.ledger.held()) == (("ended", "Enough."), ())
        await service.servers.end(session, "Again.")
        assert state(service, session) == ("ended", "Enough.")

    play(scenario)


def test_an_engine_that_does_not_answer_changes_nothing(play: Any, engine: FakeEngine, clock: Clock) -> None:
    async def scenario(service: Service) -> None:
        session, ticket = add(service, mib=8192), add(service, "bob/", mib=8192)
        engine.deaf = True
        clock.now += 100_000
        with pytest.raises(EngineError):
            await service.servers.end(session, "Enough.")
        with pytest.raises(EngineError):
            await service.servers.look()
        assert (state(service, session)[0], state(service, ticket)[0]) == ("held", "waiting")

    play(scenario)


def test_a_ticket_lapses_when_nobody_asks_about_it(play: Any, clock: Clock) -> None:
    async def scenario(service: Service) -> None:
        add(service, "bob/", mib=8192)
        ticket = add(service, mib=8192)
        for _ in range(3):
            clock.now += 599
            service.servers.asked(ticket)
            await service.servers.look()
            assert state(service, ticket)[0] != "ended"
        clock.now += 601
        await service.servers.look()
        assert state(service, ticket) == ("ended", "Nobody asked about it any more.")

    play(scenario, boot="boot")


def test_a_lease_on_which_no_server_starts_lapses(play: Any, engine: FakeEngine, clock: Clock) -> None:
    async def scenario(service: Service) -> None:
        unused, used = add(service), add(service, "bob/")
        begin(engine, used)
        clock.now += 59
        await service.servers.look()
        service.servers.asked(unused)
        clock.now += 59
        await service.servers.look()
        assert state(service, unused)[0] == "held"
        clock.now += 2
        await service.servers.look()
        assert state(service, unused) == ("ended", "No server was started on it.")
        assert (state(service, used)[0], len(service.ledger.held())) == ("held", 1)

    play(scenario)


def test_a_server_that_another_backend_runs_lives_as_long_as_the_hub_knows_it(
    play: Any, clock: Clock, hub: Hub
) -> None:
    async def scenario(service: Service) -> None:
        session = add(service)
        hub.servers = {"ada": {""}}
        for _ in range(20):
            clock.now += 59
            await service.servers.look()
        assert state(service, session)[0] == "held"
        hub.servers = {"ada": {"second"}}
        clock.now += 61
        await service.servers.look()
        assert state(service, session)[0] == "ended"

    play(scenario)


def test_an_unused_lease_outlives_a_restart_of_the_hub(play: Any, clock: Clock, hub: Hub) -> None:
    async def scenario(service: Service) -> None:
        session = add(service)
        hub.servers = None
        for seconds, found in ((599, "held"), (2, "ended")):
            clock.now += seconds
            await service.servers.look()
            assert state(service, session)[0] == found

    play(scenario)


def test_from_its_grant_on_a_lease_has_its_whole_time(play: Any, clock: Clock) -> None:
    async def scenario(service: Service) -> None:
        first, ticket = add(service, "bob/", mib=8192), add(service, mib=8192)
        clock.now += 590
        await service.servers.end(first, "")
        await until(lambda: state(service, ticket)[0], "held")
        clock.now += 59
        await service.servers.look()
        assert state(service, ticket)[0] == "held"

    play(scenario)


def test_a_process_that_the_engine_does_not_know_keeps_its_lease(
    play: Any, clock: Clock, engine: FakeEngine
) -> None:
    engine.remaining.add("1/1")

    async def scenario(service: Service) -> None:
        session, other = add(service), add(service, "bob/")
        clock.now += 61
        await service.servers.look()
        assert (state(service, session)[0], state(service, other)[0]) == ("held", "ended")

    play(scenario)


def test_one_that_the_engine_lost_is_free_when_its_last_process_is(play: Any, engine: FakeEngine) -> None:
    async def scenario(service: Service) -> None:
        session = add(service)
        engine.remaining.add(f"{session.id}/1")
        await service.servers.end(session, "Enough.")
        for _ in range(2):
            await service.servers.look()
            assert state(service, session) == ("releasing", "Enough.")
        engine.remaining.clear()
        await service.servers.look()
        assert state(service, session) == ("ended", "Enough.")

    play(scenario)


def test_a_server_that_is_started_too_late_is_stopped(play: Any, engine: FakeEngine, clock: Clock) -> None:
    async def scenario(service: Service) -> None:
        session = add(service)
        await service.servers.end(session, "Withdrawn.")
        key = begin(engine, session)
        await service.servers.look()
        assert asked_to_end(engine) == [key]

    play(scenario)


def test_the_time_of_one_that_another_backend_runs_is_bounded(play: Any, clock: Clock, hub: Hub) -> None:
    hub.servers = {"ada": {""}}

    async def scenario(service: Service) -> None:
        session = add(service)
        clock.now += 7201
        await service.servers.look()
        assert state(service, session) == ("ended", "Its time is over.")

    play(scenario)


def test_a_clock_that_is_set_ends_no_server_that_the_engine_runs(
    play: Any, engine: FakeEngine, clock: Clock, hub: Hub
) -> None:
    hub.servers = {"ada": {""}}

    async def scenario(service: Service) -> None:
        session = add(service)
        begin(engine, session)
        for step in (7201, -100_000):
            clock.now += step
            await service.servers.look()
            assert (asked_to_end(engine), state(service, session)[0]) == ([], "held")
        engine.end(key_of(session), cause="limit")
        assert state(service, session) == ("ended", "Its time is over.")

    play(scenario)


def test_an_end_stays_readable_for_a_while(play: Any, engine: FakeEngine, clock: Clock) -> None:
    async def scenario(service: Service) -> None:
        key = begin(engine, add(service))
        engine.end(key)
        await service.servers.look()
        assert key in engine.known
        clock.now += 601
        await service.servers.look()
        assert key not in engine.known

    play(scenario)


def test_a_server_that_the_hub_forgot_ends(play: Any, engine: FakeEngine, clock: Clock, hub: Hub) -> None:
    async def scenario(service: Service) -> None:
        lost, known = add(service), add(service, "bob/second")
        keys = [begin(engine, session) for session in (lost, known)]
        hub.servers = {"ada": {"other"}, "bob": {"second"}}
        await service.servers.look()
        for _ in range(2):
            assert asked_to_end(engine) == []
            clock.now += 60
            await service.servers.look()
        assert asked_to_end(engine) == keys[:1]
        assert state(service, lost) == ("releasing", "The Hub does not know this server any more.")
        assert state(service, known)[0] == "held"

    play(scenario)


def test_a_hub_that_is_silent_or_slow_ends_no_server(
    play: Any, engine: FakeEngine, clock: Clock, hub: Hub
) -> None:
    async def scenario(service: Service) -> None:
        session = add(service)
        begin(engine, session)
        for known in (None, {}, None, {"ada": {""}}, {}, None):
            hub.servers = known
            clock.now += 60
            await service.servers.look()
        assert (asked_to_end(engine), state(service, session)[0]) == ([], "held")

    play(scenario)


def test_after_a_restart_what_lives_goes_on(play: Any, engine: FakeEngine, clock: Clock) -> None:
    made: list[SessionRecord] = []

    async def before(service: Service) -> None:
        made.extend([add(service), add(service, "bob/"), add(service, "eve/", mib=8192)])
        begin(engine, made[0])
        begin(engine, made[1])

    async def after(service: Service) -> None:
        assert asked_to_end(engine) == []
        assert [state(service, session)[0] for session in made[:2]] == ["held", "ended"]
        clock.now += 599
        await service.servers.look()
        assert state(service, made[2])[0] == "waiting"
        clock.now += 2
        await service.servers.look()
        assert [state(service, session)[0] for session in made] == ["held", "ended", "ended"]

    play(before)
    engine.end(f"{made[1].id}/1", tell=False)
    clock.now += 5000
    play(after)


def test_after_a_reboot_no_server_runs(play: Any, engine: FakeEngine) -> None:
    made: list[SessionRecord] = []

    async def before(service: Service) -> None:
        made.extend([add(service), add(service, "bob/"), add(service, "eve/", mib=8192)])
        begin(engine, made[1])

    async def after(service: Service) -> None:
        assert [state(service, session) for session in made[:2]] == [
            ("ended", "The machine was restarted.")
        ] * 2
        await until(lambda: state(service, made[2])[0], "held")

    play(before)
    engine.end(f"{made[1].id}/1", tell=False, cause="reboot")
    play(after, boot="another")


def test_a_lease_that_was_being_given_back_waits_for_the_server(play: Any, engine: FakeEngine) -> None:
    made: list[SessionRecord] = []

    async def before(service: Service) -> None:
        made.append(add(service))
        begin(engine, made[0])
        await service.servers.end(made[0], "Enough.")

    async def after(service: Service) -> None:
        await asyncio.sleep(0.05)
        assert state(service, made[0])[0] == "releasing"
        engine.end(f"{made[0].id}/1", cause="cancel")
        assert state(service, made[0]) == ("ended", "Enough.")

    play(before)
    play(after)


def test_stopping_the_pool_ends_servers_too(play: Any, engine: FakeEngine) -> None:
    async def scenario(service: Service) -> None:
        session, ticket = add(service, mib=8192), add(service, "bob/", mib=8192)
        key = begin(engine, session)
        stopped: list[bool] = []

        async def shutdown(*, kill_jobs: bool) -> None:
            stopped.append(kill_jobs)

        engine.shutdown = shutdown  # type: ignore[attr-defined]
        await service.end_all()
        assert (asked_to_end(engine), stopped) == ([key], [True])
        assert (state(service, session)[0], state(service, ticket)[0]) == ("releasing", "ended")

    play(scenario)
