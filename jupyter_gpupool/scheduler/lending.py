"""When a partition for sessions lends its cards to jobs, and until when.

Owns: windows, settling time and hand-back, as they bound one job on a lent card.
Never: which card (`placement`), nor how much must stay free for sessions (`headroom`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from jupyter_gpupool.scheduler.model import Lend, Partition, Seconds, Settings, Snapshot, Work
from jupyter_gpupool.scheduler.timeline import BEGIN, FOREVER, Interval


class Term(NamedTuple):
    """Starts over [first, last], of work that leaves by `back`; `by_day` it leaves the headroom free."""

    first: Seconds
    last: Seconds
    back: Seconds
    by_day: bool = False


ALWAYS = Term(BEGIN, FOREVER, FOREVER)


class Lender:
    """What one partition lends, and when."""

    def __init__(self, lend: Lend, windows: tuple[Interval, ...], settings: Settings) -> None:
        self.lend = lend
        self.windows = windows
        self._ends = [closes for _, closes in windows]
        self._least = settings.min_run_time

    def hand_back(self, time: Seconds) -> Seconds:
        """Return when a job that is on a lent card at `time` must leave: at the next window's end."""
        following = self._following(time)
        return self.windows[following][1] if following < len(self.windows) else FOREVER

    def in_window(self, time: Seconds) -> bool:
        """Say whether `time` is in one of the windows."""
        following = self._following(time)
        return following < len(self.windows) and self.windows[following][0] <= time

    def open(self, time: Seconds) -> bool:
        """Say whether some job could start here at `time`."""
        by_day = self.lend.by_day and time >= self._settled(self._following(time))
        return by_day or self.in_window(time)

    def term(self, work: Work, start: Seconds) -> Term | None:
        """Return the term in which `work` may start at `start`, or None when it may not."""
        number = self._following(start)
        opened = number < len(self.windows) and self.windows[number][0] <= start
        found = self._in_window(work, number) if opened else self._by_day(work, number)
        return found if found is not None and found.first <= start <= found.last else None

    def terms(self, work: Work, after: Seconds) -> Iterator[Term]:
        """Yield when `work` may start, from `after` on: the days and the windows, in order."""
        for number in range(self._following(after), len(self.windows) + 1):
            for found in (self._by_day(work, number), self._in_window(work, number)):
                if found is not None and max(found.first, after) <= found.last:
                    yield found._replace(first=max(found.first, after))

    def _by_day(self, work: Work, number: int) -> Term | None:
        """Return the term of the day before a window; only jobs that can be stopped start then.

        Work has `min_run_time` and its grace left until the hand-back.
        """
        if not (self.lend.by_day and work.resumable):
            return None
        opens, closes = self.windows[number] if number < len(self.windows) else (FOREVER, FOREVER)
        last = min(opens - 1, closes - self._least - work.grace)
        return Term(self._settled(number), last, closes, by_day=True)

    def _in_window(self, work: Work, number: int) -> Term | None:
        """Return the term of a window; what cannot resume is over by its end."""
        if number >= len(self.windows):
            return None
        opens, closes = self.windows[number]
        least = self._least + work.grace
        return Term(opens, closes - (least if work.resumable else max(least, work.limit)), closes)

    def next_edge(self, time: Seconds) -> Seconds | None:
        """Return when, after `time`, a window next opens or ends, or has settled."""
        following = self._following(time)
        edges = [*self.windows[following]] if following < len(self.windows) else []
        if self.lend.by_day:
            edges.append(self._settled(following))
        return min((edge for edge in edges if edge > time), default=None)

    def _following(self, time: Seconds) -> int:
        """Return the number of the first window that ends after `time`."""
        return bisect_right(self._ends, time)

    def _settled(self, number: int) -> Seconds:
        """Return when the day before a window has settled."""
        return self.windows[number - 1][1] + self.lend.settle if number else BEGIN


def lenders(snapshot: Snapshot) -> dict[str, Lender]:
    """Return the partitions that lend cards to jobs, which they do not serve themselves."""
    return {
        name: Lender(partition.lend, snapshot.windows.get(partition.lend.window, ()), snapshot.settings)
        for name, partition in snapshot.partitions.items()
        if partition.lend is not None and not _serves_jobs(partition)
    }


def _serves_jobs(partition: Partition) -> bool:
    return "job" in partition.kinds
