"""The parts of one service, joined.

Owns: opening them in order, closing them in reverse, and what must be done now and then. Never: HTTP (see
`application`), or the process (see `main`).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.devices.base import Pool
from jupyter_gpupool.devices.find import open_pool
from jupyter_gpupool.devices.locks import CardLocks
from jupyter_gpupool.engines.base import Ended
from jupyter_gpupool.engines.local import boot
from jupyter_gpupool.engines.local.engine import LocalEngine
from jupyter_gpupool.ledger import InUse
from jupyter_gpupool.ledger.records import CardRecord, LeaseRecord, SessionRecord
from jupyter_gpupool.ledger.store import Ledger
from jupyter_gpupool.policy.model import Policy
from jupyter_gpupool.service.activity import Activity
from jupyter_gpupool.service.array_views import ArrayViews
from jupyter_gpupool.service.arrays import top_up
from jupyter_gpupool.service.config import ServiceConfig
from jupyter_gpupool.service.controller import Controller
from jupyter_gpupool.service.dependencies import cancel_broken
from jupyter_gpupool.service.events import Bus
from jupyter_gpupool.service.housekeeping import Housekeeping
from jupyter_gpupool.service.identity import Identify, identify
from jupyter_gpupool.service.meter import Meter
from jupyter_gpupool.service.news import News
from jupyter_gpupool.service.notices import Notices
from jupyter_gpupool.service.policy_store import PolicyStore
from jupyter_gpupool.service.progress import Progress
from jupyter_gpupool.service.release import Releases
from jupyter_gpupool.service.remains import Remains
from jupyter_gpupool.service.rounds import Rounds
from jupyter_gpupool.service.rules import LOOK_S as IDLE_LOOK_S
from jupyter_gpupool.service.rules import Rules
from jupyter_gpupool.service.runs import Runs
from jupyter_gpupool.service.safety import unsafe_launcher, unsafe_policy
from jupyter_gpupool.service.servers import Servers
from jupyter_gpupool.service.sessions import Sessions
from jupyter_gpupool.service.snapshots import SnapshotStore
from jupyter_gpupool.service.tokens import JobTokens, secret_in
from jupyter_gpupool.service.views import Views
from jupyter_gpupool.service.visibility import public
from jupyter_gpupool.service.watch import LOOK_S as WATCH_LOOK_S
from jupyter_gpupool.service.watch import Watch

END_GRACE_S = 10
"""How long a job may take to end when the whole pool is stopped; its own grace, if that is shorter."""
HANDOVER_S = 10.0
"""How long a new service waits for one that is ending."""

KnownServers = Callable[[], Awaitable[dict[str, set[str]] | None]]
"""Asks a Hub for the names of each user's servers; None = it does not say."""


@dataclass
class Service:
    """One pool, open."""

    config: ServiceConfig
    pool: Pool
    policies: PolicyStore
    ledger: Ledger
    engine: LocalEngine
    bus: Bus
    news: News
    notices: Notices
    controller: Controller
    releases: Releases
    snapshots: SnapshotStore
    tokens: JobTokens
    progress: Progress
    runs: Runs
    sessions: Sessions
    servers: Servers
    views: Views
    array_views: ArrayViews
    identify: Identify
    activity: Activity
    stopping: asyncio.Event
    ownership: str = ""
    keep_jobs: bool = True
    retire: bool = False
    describe: Callable[[], dict[str, Any]] = dict

    @property
    def description(self) -> str:
        """What the pool's cards are, and how firmly they are this pool's."""
        return f"{self.pool.describe()} {self.ownership}".rstrip()

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self.policies.policy

    @property
    def now(self) -> int:
        """The present, in whole seconds."""
        return self.controller.now

    def stop(self, *, keep_jobs: bool = True) -> None:
        """Ask the service to end; who has asked once that the jobs end is not overruled."""
        self.keep_jobs = self.keep_jobs and keep_jobs
        self.stopping.set()

    def stop_idle(self) -> None:
        """Ask the service and its launcher to end, because nothing is live."""
        self.retire = True
        self.stop()

    @property
    def idle(self) -> bool:
        """Whether nothing waits and no lease is held."""
        return not (self.ledger.waiting() or self.ledger.held())

    async def stop_session(self, session: SessionRecord, reason: str) -> None:
        """End a session and its processes; errors as in `end_session`."""
        if session.server is None:
            self.sessions.stop(session, reason)
        else:
            await self.servers.end(session, reason)

    async def end_session(self, session: SessionRecord, reason: str) -> None:
        """End a session that waits or holds a lease; with a server's, the server.

        Raises
        ------
        EngineError
            The server cannot be ended now; nothing has changed.
        """
        if session.server is None:
            self.sessions.end(session, reason)
        else:
            await self.servers.end(session, reason)

    async def end_all(self) -> None:
        """End everything that waits or runs, and the launcher with it; leave no process."""
        sentence = "The pool was stopped."
        self.controller.pause()
        for session in list(self.ledger.sessions.values()):
            if session.state.live:
                await self.end_session(session, sentence)
        for array in self.ledger.arrays.unfinished():
            self.ledger.arrays.cancel(array, sentence, self.now)
        waiting = [job.id for job in self.ledger.jobs.values() if job.state.waiting]
        self.ledger.cancel_all_queued(waiting, sentence, self.now)
        live = [job for job in self.ledger.jobs.values() if job.state.live]
        await asyncio.gather(*(self.runs.stop(job, "cancel", sentence, grace_s=END_GRACE_S) for job in live))
        while any(self.ledger.jobs[job.id].state.live for job in live):
            await asyncio.sleep(0.02)
        await self.engine.shutdown(kill_jobs=True)


async def open_service(
    stack: AsyncExitStack,
    config: ServiceConfig,
    *,
    clock: Callable[[], float] = time.time,
    monotonic: Callable[[], float] = time.monotonic,
    identify: Identify = identify,
    pool: Pool | None = None,
    engine: LocalEngine | None = None,
    known_servers: KnownServers | None = None,
) -> Service:
    """Open every part, find again what was under way, and begin to plan; `stack` closes it all.

    Parameters
    ----------
    known_servers
        Which servers the Hub has; None where there is no Hub.

    Raises
    ------
    DevicesError, LedgerError, EngineError, PolicyError, Refused
        The pool cannot be served; one sentence says why, and what to do.
    """
    config.home.make()
    pool = pool or open_pool(config.simulate)
    stack.callback(pool.close)
    ledger = await _open_ledger(config, int(clock()))
    stack.callback(ledger.close)
    crashed = config.home.service_record.exists()  # who ends well removes it before letting go of the ledger
    ownership = "" if pool.simulated else _own_cards(stack, config, pool)
    ledger.set_cards(
        CardRecord(card.uuid, card.node, card.index, card.model, card.memory_mib) for card in pool.cards()
    )
    policies = PolicyStore(
        config.policy_file, config.policy_history, pool, partial(unsafe_policy, config, os.geteuid())
    )
    policies.refresh(int(clock()))
    if config.hub and not policies.usable:
        raise Refused("policy_invalid", f"The pool has no good policy: {public(policies.error)}")
    bus = Bus(first=int(clock() * 1000))
    stack.callback(bus.close)
    notices = Notices(ledger, lambda: policies.policy, lambda: int(clock()))
    news = News(bus, notices.job)
    engine = engine or LocalEngine(config.engine_home, boot=config.boot_id, may_start=config.launcher is None)
    snapshots = SnapshotStore(config.snapshots, config.snapshot_cap_mib)
    tokens = JobTokens(secret_in(config.token_secret), ledger.jobs)
    progress = Progress(config.sent_progress, engine.files)

    def begin(leases: list[LeaseRecord]) -> None:
        for lease in leases:
            if lease.kind == "job":
                runs.launch(lease)
            elif ledger.sessions[lease.work].server is None:
                sessions.held(lease)
            else:
                servers.held(lease)

    def ended(report: Ended) -> None:
        (servers if servers.owns(report.key) else runs).ended(report)

    def ask(leases: list[LeaseRecord]) -> None:
        for lease in leases:
            runs.ask(lease)

    def put_in_order() -> None:
        cancel_broken(ledger, news, controller.now)
        top_up(controller, news)

    controller = Controller(ledger, policies, pool, begin, ask, news.policy, put_in_order, clock)
    releases = Releases(ledger, pool, lambda: controller.now, controller.changed)
    stack.callback(releases.close)
    runs = Runs(config, controller, engine, releases, snapshots, tokens, progress, news)
    sessions = Sessions(controller, releases, news)
    servers = Servers(controller, engine, releases, news, ask_hub=known_servers, clock=monotonic)
    await engine.open(ended)
    stack.push_async_callback(engine.close)
    if because := unsafe_launcher(config, policies.policy, root=engine.privileged):
        raise Refused("unsafe", because)
    stack.push_async_callback(runs.close)
    stack.callback(sessions.close)
    attempts = await engine.list()
    await runs.adopt(attempt for attempt in attempts if not servers.owns(attempt.key))
    servers.adopt(attempt for attempt in attempts if servers.owns(attempt.key))
    releases.adopt({attempt.key for attempt in attempts})
    sessions.adopt()
    notices.open()
    stack.push_async_callback(notices.close)
    controller.open()
    stack.push_async_callback(controller.close)
    servers.open()
    stack.push_async_callback(servers.close)
    housekeeping = Housekeeping(controller, engine.files, progress, snapshots, bus, news)
    housekeeping.open()
    stack.push_async_callback(housekeeping.close)
    views = Views(
        config, controller, progress, "" if engine.survival.whole_tree else engine.survival.sentence
    )
    activity = Activity()
    service = Service(
        config=config,
        pool=pool,
        policies=policies,
        ledger=ledger,
        engine=engine,
        bus=bus,
        news=news,
        notices=notices,
        controller=controller,
        releases=releases,
        snapshots=snapshots,
        tokens=tokens,
        progress=progress,
        runs=runs,
        sessions=sessions,
        servers=servers,
        views=views,
        array_views=ArrayViews(ledger, controller.forecast, views),
        identify=identify,
        activity=activity,
        stopping=asyncio.Event(),
        ownership=ownership,
    )
    rules = Rules(
        controller,
        Meter(pool, ledger, engine),
        activity,
        news,
        notices.tell,
        release=service.end_session,
        stop=service.stop_session,
    )
    remains = Remains(controller, engine, releases)
    watch = Watch(controller, engine, config.home.path, notices.tell, remains)
    if crashed:
        watch.is_back()
    for what, look, every_s in (
        ("what is idle", rules.look, IDLE_LOOK_S),
        ("the pool's troubles", watch.look, WATCH_LOOK_S),
    ):
        rounds = Rounds(what, look, every_s)
        rounds.open()
        stack.push_async_callback(rounds.close)
    return service


def _own_cards(stack: AsyncExitStack, config: ServiceConfig, pool: Pool) -> str:
    """Keep other pools of this machine off its cards; return how firmly."""
    locks = CardLocks.take((card.uuid for card in pool.cards()), home=config.home.path)
    stack.callback(locks.release)
    return locks.describe()


async def _open_ledger(config: ServiceConfig, now: int) -> Ledger:
    """Open the ledger, waiting for a service that is just about to end.

    Raises
    ------
    LedgerError
        It cannot be opened, or another service is alive.
    """
    loop = asyncio.get_running_loop()
    give_up = loop.time() + HANDOVER_S
    while True:
        try:
            return Ledger.open(config.ledger_file, now=now, boot_id=config.boot_id or boot.boot_id())
        except InUse:
            if loop.time() > give_up or await _answers(config):
                raise
        await asyncio.sleep(0.05)


async def _answers(config: ServiceConfig) -> bool:
    """Whether a service listens at this home."""
    try:
        _, writer = await asyncio.open_unix_connection(config.home.service_socket)
    except OSError:
        return False
    writer.close()
    return True
