"""A lease of the pool for every server that a Hub starts, over any spawner.

Owns: the order of one start: choice, lease, queue, the backend's own start; and that the lease ends with the
server, whatever fails. Never: how the backend starts a server, or who gets what.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from jupyterhub.spawner import Spawner
from jupyterhub.utils import maybe_future
from traitlets import Integer, Unicode, default

from jupyter_gpupool.client.errors import PoolError
from jupyter_gpupool.client.text import duration
from jupyter_gpupool.devices.modes import merged
from jupyter_gpupool.spawner.answers import Spawn, Work, understood
from jupyter_gpupool.spawner.choice import Choice, ours_of, read_choice, split_form, without_ours
from jupyter_gpupool.spawner.form import render, unavailable
from jupyter_gpupool.spawner.news import ASKING, News, plain_event
from jupyter_gpupool.spawner.pool import Pool
from jupyter_gpupool.spawner.queue import Queue
from jupyter_gpupool.spawner.refusal import UNAVAILABLE, Refusal
from jupyter_gpupool.spawner.turns import TURN_S, Turns, my_turn

QUEUE_TIMEOUT_S = 12 * 3600
_GIVE_BACK_S = 5.0


class GpuPoolMixin(Spawner):  # type: ignore[misc]
    """Asks the pool for a lease before the backend starts a server, and gives it back after.

    Mix it in before a spawner: ``class Spawner(GpuPoolMixin, KubeSpawner)``.
    """

    pool_url = Unicode(
        help="""
        Where the pool's service answers: ``unix:/path/to/hub.sock?uid=N``, N being the account that serves
        it, or ``https://host/services/gpupool``.
        """
    ).tag(config=True)

    pool_token = Unicode(
        help="""
        The token of the Hub's service ``gpupool-spawner``, the only one that may lease for others.
        """
    ).tag(config=True)

    queue_timeout = Integer(
        QUEUE_TIMEOUT_S,
        min=0,
        help="""
        Seconds that a login may wait for a GPU. They do not count against ``start_timeout``.
        """,
    ).tag(config=True)

    reads_options = True
    """Whether the backend may have options of its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._news = News()
        self._lease: int | None = None
        self._granted: Mapping[str, str] = {}
        self._starting = False
        self._backend_started = False
        self._site_start_timeout: int | None = None
        self._remembered = ours_of(self.user_options)

    @property
    def pool(self) -> Pool:
        """The way to the service."""
        return Pool(self.pool_url, self.pool_token)

    # What is chosen

    async def get_options_form(self) -> str:
        """Return the site's form, then the pool's."""
        site = await super().get_options_form()
        return f"{site or ''}{await self._form()}"

    async def _form(self) -> str:
        try:
            choices = await self.pool.choices(self.user.name, self._groups())
            with understood():
                return render(choices, self._remembered)
        except PoolError as error:
            return unavailable(str(error))

    async def run_options_from_form(self, form_data: dict[str, Any]) -> dict[str, Any]:
        """Read the pool's fields, and let the site read the others."""
        ours, site = split_form(form_data)
        return {**await maybe_future(super().run_options_from_form(site)), **ours}

    async def options_from_query(self, query_data: dict[str, Any]) -> dict[str, Any]:
        """Read the pool's options in a link, and let the site read the others."""
        ours, site = split_form(query_data)
        return {**await maybe_future(super().options_from_query(site)), **ours}

    @default("apply_user_options")
    def _read_in_start(self) -> Any:
        return _nothing_to_apply

    def _alone(self) -> bool:
        """Whether no backend, form or hook of the site may have options of its own."""
        others = self.reads_options or self.options_form or self.pre_spawn_hook
        return not others and self.apply_user_options is _nothing_to_apply

    def _groups(self) -> list[str]:
        """The user's groups on the Hub, as they are now."""
        return [group.name for group in self.user.groups]

    # One start

    async def run_pre_spawn_hook(self) -> None:
        """Run the site's hook; then have the Hub allow for the waiting beside the site's start timeout."""
        self._restore_start_timeout()
        await maybe_future(super().run_pre_spawn_hook())
        self._site_start_timeout = self.start_timeout
        self.start_timeout += self.queue_timeout + TURN_S

    def _restore_start_timeout(self) -> int:
        """Set and return the site's own start timeout."""
        if self._site_start_timeout is not None:
            self.start_timeout, self._site_start_timeout = self._site_start_timeout, None
        return int(self.start_timeout)

    async def start(self) -> Any:
        """Get a lease, then let the backend start the server within the site's start timeout.

        Raises
        ------
        Refusal
            The choice is wrong, the pool refuses, or its service cannot be used.
        """
        self._starting = True
        started = False
        try:
            choice = read_choice(self.user_options, alone=self._alone())
            self._take(await self._lease_for(choice))
            async with my_turn(self.turns, self._news):
                address = await self._start_backend(self._restore_start_timeout())
            await self._check_lease()
            started = True
            return address
        finally:
            self._starting = False
            self._news.end()
            self._restore_start_timeout()
            self._remember(started)

    async def _lease_for(self, choice: Choice) -> Spawn:
        """Ask for the lease, and wait for it where that was chosen."""
        self._news.say(plain_event(ASKING, "Asking the pool for a place."))
        queue = Queue(self.pool, self._news, self.user.settings)
        self._lease = None
        try:
            spawn = await queue.ask(self.user.name, self.name, self._groups(), choice)
            self._lease = spawn.lease
            return await queue.wait(spawn, self.queue_timeout)
        except PoolError as error:
            raise Refusal.of(error) from None

    def _take(self, spawn: Spawn) -> None:
        """The lease is held: what the backend's environment and work will be."""
        self._granted = spawn.environment
        assert spawn.work is not None
        self.take_work(spawn.work)

    @property
    def turns(self) -> Turns:
        """The line in which servers start; one host does only a few at a time."""
        return Turns()

    async def _start_backend(self, seconds: int) -> Any:
        """Let the backend start the server; return where it is."""
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                self._backend_started = True
                return await maybe_future(super().start())
        except TimeoutError:
            if not limit.expired():
                raise
            raise Refusal(
                f"Your server was not up within {duration(seconds)}, the longest that a start may take here. "
                "Try again; if it lasts, tell your administrator.",
                reason="timeout",
                status_code=UNAVAILABLE,
            ) from None

    async def _check_lease(self) -> None:
        """See that the lease is held still: it may have ended while the server was slow to start."""
        try:
            spawn = await self.pool.look(self._lease or 0)
        except PoolError as error:
            self.log.warning("%s: its lease cannot be looked at now: %s", self._log_name, error)
            return
        if spawn.state != "held":
            raise Refusal(f"{spawn.reason} Start the server again to ask anew.", reason="lease_ended")

    def take_work(self, work: Work) -> None:
        """Learn what the lease lets the backend run; for backends that need it."""

    def get_env(self) -> dict[str, str]:
        """Return the backend's environment with the lease's laid over it."""
        return merged(super().get_env(), self._granted)

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """Yield how the queue goes, then what the backend has to say."""
        async for event in self._news.follow():
            yield event
        async for event in super().progress():
            yield event

    def _remember(self, started: bool) -> None:
        """Make a choice the next start's default only if it worked."""
        if started:
            self._remembered = ours_of(self.user_options)
        elif self.orm_spawner is not None:
            others = {} if self._alone() else without_ours(self.user_options)
            self.orm_spawner.user_options = {**others, **self._remembered}
            self.user.db.commit()

    # Its end

    async def poll(self) -> int | None:
        """Return None while the server runs or starts; when the backend says it is over, end its lease."""
        if self._starting:
            return None
        lease = self._lease
        status = await maybe_future(super().poll()) if self._backend_started else 0
        if status is not None and lease is not None:
            await self._give_back(lease)
        return status

    async def stop(self, now: bool = False) -> None:
        """Stop the server and give its lease back.

        A start that still waits is cancelled before this when its user stops it. If it is not, the Hub is
        going down: then the place in the queue is kept for when it is back.
        """
        waiting, self._starting = self._starting and not self._backend_started, False
        if waiting:
            return
        lease = self._lease
        if self._backend_started:
            await maybe_future(super().stop(now) if now else super().stop())
        if lease is not None:
            await self._give_back(lease)

    async def _give_back(self, lease: int) -> None:
        """End the lease; without the service, which then learns by itself that the server is gone."""
        try:
            async with asyncio.timeout(_GIVE_BACK_S):
                await self.pool.give_back(lease)
        except (PoolError, TimeoutError) as error:
            self.log.warning("%s: lease %d could not be given back now: %s", self._log_name, lease, error)
        else:
            if self._lease == lease:
                self._lease = None

    # What the Hub keeps

    def get_state(self) -> dict[str, Any]:
        """Return what a restarted Hub must know: the lease. No token is in it."""
        state: dict[str, Any] = super().get_state()
        if self._lease is not None:
            state["gpupool_lease"] = self._lease
        return state

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up a server that ran under an earlier Hub process."""
        super().load_state(state)
        lease = state.get("gpupool_lease")
        if isinstance(lease, int):
            self._lease, self._backend_started = lease, True

    def clear_state(self) -> None:
        """Forget the lease; it has been given back, or the service ends it."""
        super().clear_state()
        self._lease, self._granted = None, {}
        self._backend_started = False
        self._news.begin()


def _nothing_to_apply(_spawner: Spawner, _options: dict[str, Any]) -> None:
    """The pool's options are read when a server starts, whatever way they came."""
