"""Messages to people who have closed the browser.

Owns: which message goes through which channel, that each is written down before it is delivered, and the
delivery, beside the event loop: several for one person go as one, what fails is tried again for a day.
Never: the words of a message (see `occasions`), or how a server is spoken to (see `channels`).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from email.message import EmailMessage
from itertools import groupby

from jupyter_gpupool.client.text import duration, plural
from jupyter_gpupool.ledger import LedgerUnavailable
from jupyter_gpupool.ledger.outbox import Channel, Message, Notice
from jupyter_gpupool.ledger.records import Job
from jupyter_gpupool.ledger.store import Ledger
from jupyter_gpupool.policy.model import Notify, Policy
from jupyter_gpupool.service import channels, occasions
from jupyter_gpupool.service.channels import Undelivered

log = logging.getLogger("gpupool")

FIRST_RETRY_S = 30
LONGEST_RETRY_S = 3600
GIVE_UP_S = 86400
KEPT_S = 30 * 86400
RECENT_S = 600
"""What a service did so shortly before it ended that it may not have told is told by the next."""
LOOK_S = 60.0
MOST_IN_ONE = 50
LONGEST_S = 60
"""A server that has not taken a message by then keeps the others waiting no longer."""
CLOSING_S = 3.0
PASSING = 0
"""The number of a message that could not be written down."""
SUBJECT = "[gpupool] "


class Notices:
    """What is told to users and administrators of one pool.

    Attributes
    ----------
    trouble
        Why messages do not arrive now; None when they do.
    """

    def __init__(self, ledger: Ledger, policy: Callable[[], Policy], clock: Callable[[], int]) -> None:
        self._ledger = ledger
        self._outbox = ledger.outbox
        self._policy = policy
        self._clock = clock
        self._unwritten: deque[Message] = deque(maxlen=MOST_IN_ONE)
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._troubles: dict[Channel, str] = {}
        self._closing = False

    @property
    def trouble(self) -> str | None:
        """Say why messages do not arrive; None when they do."""
        return " ".join(self._troubles.values()) or None

    # -- telling -------------------------------------------------------------------------------------

    def job(self, job: Job) -> None:
        """Tell the owner of a job what is to be told in its present state."""
        policy = self._policy()
        if not occasions.wanted(job, policy):
            return
        message = (
            occasions.of_job(job, policy) if job.array is None else self._of_array(job.array, job, policy)
        )
        if message is not None:
            self.tell(message)

    def _of_array(self, array: int, job: Job, policy: Policy) -> Message | None:
        arrays = self._ledger.arrays
        counts = arrays.counts(array)
        failed: list[str] = []
        if all(state.ended for state in counts):
            failed = [str(task.index) for task in arrays.jobs(array) if task.state in occasions.BAD]
        return occasions.of_array(array, job, counts, failed, policy)

    def tell(self, message: Message) -> None:
        """Write a message down and have it delivered; one of the same key is not told twice."""
        ways = self._channels(message.user)
        try:
            if not self._outbox.add([message], ways, self._clock()):
                log.warning("So many messages wait that one is left out: %s", message.key)
        except LedgerUnavailable as error:
            log.warning("A message waits until it can be written down: %s", error)
            self._unwritten.append(message)
        self._news.set()

    def _channels(self, user: str | None) -> list[Channel]:
        notify = self._policy().notify
        found: list[Channel] = []
        if notify.smtp and _addresses(notify, user):
            found.append("mail")
        if notify.webhook:
            found.append("webhook")
        return found

    # -- life ----------------------------------------------------------------------------------------

    def open(self) -> None:
        """Begin to deliver, and tell what the service before this one may not have told."""
        since = self._clock() - RECENT_S
        for job in list(self._ledger.jobs.values()):
            at = job.ended if job.state.ended else job.started
            if at is not None and at >= since:
                self.job(job)
        self._task = asyncio.create_task(self._deliver_forever())

    async def close(self) -> None:
        """Let what is on its way arrive, for a moment; the rest is the next service's."""
        self._closing = True
        self._news.set()
        if self._task:
            await asyncio.wait([self._task], timeout=CLOSING_S)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _deliver_forever(self) -> None:
        while not self._closing:
            try:
                await self.deliver()
                due = self._outbox.next_due()
            except LedgerUnavailable as error:
                log.warning("%s", error)
                due = None
            except Exception:
                log.exception("Messages are delivered later")
                due = None
            pause = LOOK_S if due is None else min(LOOK_S, max(1.0, due - self._clock()))
            if not self._closing:
                await self._rest(pause)

    async def _rest(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._news.wait(), seconds)
        except TimeoutError:
            pass
        self._news.clear()

    # -- delivering ----------------------------------------------------------------------------------

    async def deliver(self) -> None:
        """Deliver what is due, each channel for itself."""
        await self._write_down()
        now = self._clock()
        self._outbox.forget(now - KEPT_S)
        due = sorted(self._outbox.due(now), key=lambda notice: (notice.channel, notice.user or "", notice.id))
        by_channel = groupby(due, key=lambda notice: notice.channel)
        await asyncio.gather(*(self._by(channel, list(found)) for channel, found in by_channel))

    async def _write_down(self) -> None:
        """Write down what could not be; administrators hear at once even if it still cannot."""
        for _ in range(len(self._unwritten)):
            message = self._unwritten.popleft()
            ways = self._channels(message.user)
            try:
                self._outbox.add([message], ways, self._clock())
            except LedgerUnavailable:
                if message.user is not None:
                    self._unwritten.append(message)
                    continue
                for way in ways:
                    await self._try(way, [_passing(message, way, self._clock())])

    async def _by(self, channel: Channel, notices: list[Notice]) -> None:
        for _, found in groupby(notices, key=lambda notice: notice.user):
            together = list(found)
            problem = await self._try(channel, together)
            if problem is not None and not problem.alone:
                self._put_off(notices[notices.index(together[0]) :])
                return
            if problem is not None and not problem.for_good:
                self._put_off(together)
            if self._closing:
                return

    async def _try(self, channel: Channel, together: Sequence[Notice]) -> Undelivered | None:
        """Deliver messages for one person as one, and record what came of it."""
        send = self._sender(channel, together)
        ids = [notice.id for notice in together if notice.id != PASSING]
        problem = await _beside(send) if send else Undelivered("It has no way any more.", for_good=True)
        if problem is None:
            self._troubles.pop(channel, None)
            self._outbox.delivered(ids)
        elif problem.for_good:
            log.warning("%s %s is given up.", problem, plural(len(ids), "message"))
            self._outbox.given_up(ids)
        else:
            if self._troubles.get(channel) != str(problem):
                log.warning("%s Messages are tried again later.", problem)
            self._troubles[channel] = str(problem)
        return problem

    def _put_off(self, notices: Sequence[Notice]) -> None:
        """Try again later; what has been tried for long is given up."""
        now = self._clock()
        old = [notice.id for notice in notices if now - notice.at > GIVE_UP_S]
        if old:
            log.warning("%s could not be delivered in a day.", plural(len(old), "message"))
            self._outbox.given_up(old)
        fresh = [notice for notice in notices if now - notice.at <= GIVE_UP_S]
        if fresh:
            tries = max(notice.tries for notice in fresh)
            pause = min(LONGEST_RETRY_S, FIRST_RETRY_S * 2 ** min(tries, 10))
            self._outbox.failed([notice.id for notice in fresh], now + pause)

    def _sender(self, channel: Channel, together: Sequence[Notice]) -> Callable[[], None] | None:
        """Return what delivers messages for one person, as the policy says now; None = nothing does."""
        notify, user = self._policy().notify, together[0].user
        if channel == "webhook":
            named = user if self._policy().visibility == "names" else None
            url, text = notify.webhook, "\n".join(_lines(together, named))
            return (lambda: channels.post(url, text)) if url else None
        to, server = _addresses(notify, user), notify.smtp
        if not (server and to):
            return None
        return lambda: channels.send_mail(server, _mail(notify.sender, to, together))


def _mail(sender: str | None, to: list[str], together: Sequence[Notice]) -> EmailMessage:
    """Return messages as one mail; to look up this host's own name may take a while."""
    return channels.mail(
        sender=sender or f"gpupool@{socket.getfqdn()}",
        to=to,
        subject=SUBJECT + _subject(together),
        text=_text(together),
        id=f"gpupool-{together[0].at}-{together[0].id}-{together[-1].id}",
        at=together[-1].at,
    )


def _addresses(notify: Notify, user: str | None) -> list[str]:
    if user is None:
        return list(notify.admins)
    address = notify.address(user)
    return [address] if address else []


def _subject(together: Sequence[Notice]) -> str:
    return together[0].subject if len(together) == 1 else plural(len(together), "message")


def _text(together: Sequence[Notice]) -> str:
    parts = [f"{notice.subject}.\n{notice.text}" for notice in together[:MOST_IN_ONE]]
    return "\n\n".join([*parts, *_rest_of(together)]) + "\n"


def _lines(together: Sequence[Notice], user: str | None) -> list[str]:
    """Return a line for each message; what a shared channel shows is the subject alone."""
    lines = [notice.subject for notice in together[:MOST_IN_ONE]]
    return [*(line if user is None else f"{user}: {line}" for line in lines), *_rest_of(together)]


def _rest_of(together: Sequence[Notice]) -> Iterable[str]:
    left_out = len(together) - MOST_IN_ONE
    return [f"And {plural(left_out, 'more message')}."] if left_out > 0 else []


def _passing(message: Message, channel: Channel, now: int) -> Notice:
    """Return a message that could not be written down as one that is on its way."""
    return Notice(PASSING, message.key, channel, message.user, message.subject, message.text, now, 0, now)


async def _beside(send: Callable[[], None]) -> Undelivered | None:
    """Send in a thread that keeps nobody waiting, not even the end of this process; return the problem."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Undelivered | None] = loop.create_future()

    def work() -> None:
        problem: Undelivered | None = None
        try:
            send()
        except Undelivered as error:
            problem = error
        except Exception as error:
            problem = Undelivered(f"A message could not be sent ({type(error).__name__}).", alone=True)
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, problem)

    def tell(problem: Undelivered | None) -> None:
        if not done.done():
            done.set_result(problem)

    threading.Thread(target=work, name="gpupool-notice", daemon=True).start()
    try:
        return await asyncio.wait_for(done, LONGEST_S)
    except TimeoutError:
        return Undelivered(f"A server took more than {duration(LONGEST_S)} for a message.")
