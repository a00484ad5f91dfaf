"""What anybody can check in a file of events, with nothing of the simulator's or the scheduler's.

Groups are flat here, and only cards are owed.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Event = dict[str, Any]
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass
class Run:
    """One lease of one job or session."""

    id: int
    start: int
    submit: Event
    event: Event
    end: int | None = None
    asked: Event | None = None

    def at(self, t: int) -> bool:
        """Say whether the lease is live right after `t`."""
        return self.start <= t and (self.end is None or t < self.end)

    def longest(self, latency: int) -> int:
        """Return how long the lease may last."""
        more: int = latency if self.submit["kind"] == "job" else 0
        return more + int(self.submit["limit_s"])

    @property
    def cards(self) -> dict[str, int]:
        return {gpu["gpu"]: gpu["memory_mib"] for gpu in self.event["gpus"]}


@dataclass
class Story:
    """A file of events, told run by run."""

    pool: Event
    events: list[Event]
    runs: list[Run] = field(default_factory=list)
    submits: dict[int, Event] = field(default_factory=dict)

    def __post_init__(self) -> None:
        live: dict[int, Run] = {}
        for event in self.events:
            id, t = event.get("id"), event["t"]
            if event["event"] == "submit":
                self.submits[id] = event
            elif event["event"] == "start":
                assert id not in live, f"{id} starts twice"
                live[id] = Run(id, t, self.submits[id], event)
                self.runs.append(live[id])
            elif event["event"] == "stop_asked":
                assert live[id].asked is None, f"{id} is asked twice"
                live[id].asked = event
            elif event["event"] == "end" and id in live:
                live.pop(id).end = t

    @property
    def longest_session_wait(self) -> int:
        """Return the longest wait of a session, in seconds; one that never started waited to its end."""
        first: dict[int, int] = {}
        for event in self.events:
            if event["event"] in ("start", "end"):
                first.setdefault(event["id"], event["t"])
        asked = {id: submit["t"] for id, submit in self.submits.items() if submit["kind"] == "session"}
        return max(first.get(id, self.pool["horizon_s"]) - t for id, t in asked.items())

    @property
    def size(self) -> dict[str, int]:
        return {gpu["gpu"]: gpu["memory_mib"] for gpu in self.pool["gpus"]}

    @property
    def owed(self) -> dict[str, int]:
        """Return the quota of each group, in milli-GPU."""
        groups = self.pool["policy"]["groups"]
        return {name: int(1000 * group["quota"].get("gpus", 0)) for name, group in groups.items()}

    def milli(self, run: Run) -> int:
        return sum(-(-1000 * mib // self.size[gpu]) for gpu, mib in run.cards.items())

    def lend(self, run: Run) -> Event:
        found: Event = self.pool["policy"]["partitions"][run.event["partition"]]["lend"]
        return found


def read(path: Path) -> Story:
    """Read a file of events."""
    pool, *events = map(json.loads, path.read_text().splitlines())
    return Story(pool, events)


def figures(story: Story) -> dict[str, float | None]:
    """Compute every figure."""
    horizon, events = story.pool["horizon_s"], story.events
    ends = {e["id"]: e for e in events if e["event"] == "end" and e["outcome"] != "preempted"}
    expected = {e["id"]: e["start_t"] for e in events if e["event"] == "estimate"}
    first = {e["id"]: e["t"] for e in reversed(events) if e["event"] == "start"}
    waits, slowdowns, session_waits, errors = [], [], [], []
    for id, submit in story.submits.items():
        over = ends[id]["t"] if id in ends else horizon
        waited = first.get(id, over) - submit["t"]
        if submit["kind"] == "session":
            session_waits.append(waited)
            continue
        if id in ends and ends[id]["outcome"] == "completed":
            stay, work = over - submit["t"], submit["duration_s"]
            waits.append(stay - work)
            slowdowns.append(max(1.0, stay / max(10, work)))
        if id in expected and id in first and waited >= 60:
            errors.append(abs(expected[id] - first[id]) / waited)
    done = sum(ends[id]["outcome"] == "completed" and ends[id]["kind"] == "job" for id in ends)
    errors.sort()
    half = len(errors) // 2
    card_hours = len(story.size) * horizon / 24
    return {
        "jobs_per_week": done * 604800 / horizon,
        "held_hours_per_card_day": sum(held for held, _ in use(story).values()) / card_hours,
        "touched_hours_per_card_day": sum(any_ for _, any_ in use(story).values()) / card_hours,
        "session_wait_p95_s": rank(session_waits, 0.95),
        "job_wait_mean_s": sum(waits) / len(waits) if waits else None,
        "job_wait_p95_s": rank(waits, 0.95),
        "bounded_slowdown_mean": sum(slowdowns) / len(slowdowns) if slowdowns else None,
        "eta_error_median": (errors[half] + errors[-half - 1]) / 2 if errors else None,
        "preemptions": sum(e["event"] == "end" and e["outcome"] == "preempted" for e in events),
    }


def use(story: Story) -> dict[str, tuple[float, float]]:
    """Return for each card how long it was held, weighed by memory, and held at all, from edge to edge."""
    edges: dict[str, list[tuple[int, int]]] = {gpu: [] for gpu in story.size}
    horizon = story.pool["horizon_s"]
    for run in story.runs:
        for gpu, mib in run.cards.items():
            edges[gpu] += [(run.start, mib), (horizon if run.end is None else run.end, -mib)]
    found = {}
    for gpu, there in edges.items():
        held = touched = mib = since = 0
        for t, change in sorted(there):
            held += (t - since) * mib
            touched += (t - since) * (mib > 0)
            mib, since = mib + change, t
        found[gpu] = (held / story.size[gpu], float(touched))
    return found


def rank(values: list[int], share: float) -> float | None:
    """Return the smallest value that so many of all do not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1] if values else None


def seconds(text: str) -> int:
    """Read a duration of a policy."""
    return sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+)([smhd])", text))


def faults(story: Story, *, latency: int = 0) -> list[str]:
    """Return a sentence for each rule that a simulation broke."""
    checks = (in_order, on_cards, in_time, at_grace, lent, promised, reclaimed, borrowed, bounded, resumed)
    return [fault for check in checks for fault in check(story, latency)]


def in_order(story: Story, latency: int) -> Iterator[str]:
    times = [event["t"] for event in story.events]
    if times != sorted(times):
        yield "events are not in order of time"
    if times and times[-1] > story.pool["horizon_s"]:
        yield "something happens after the horizon"


def on_cards(story: Story, latency: int) -> Iterator[str]:
    """No card is over-booked, and a whole card is held by one."""
    there: dict[str, list[tuple[int, int, Run]]] = defaultdict(list)
    for run in story.runs:
        for gpu, mib in run.cards.items():
            there[gpu].append((run.start, mib, run))
    for gpu, held in there.items():
        for t, _, new in held:
            others = [(mib, run) for _, mib, run in held if run.at(t)]
            if sum(mib for mib, _ in others) > story.size[gpu]:
                yield f"{gpu} is over-booked at {t}"
            if len(others) > 1 and any(run.submit["request"]["gpus"] for _, run in others):
                yield f"{gpu} is held whole and shared at {t}"
            if len({run.submit["kind"] for _, run in others}) > 1:
                yield f"{gpu} is shared by a job and a session at {t}"
            if new.event["gpus"] and not new.cards[gpu]:
                yield f"{new.id} holds nothing of {gpu}"


def in_time(story: Story, latency: int) -> Iterator[str]:
    """Nothing starts before it may, or lasts longer than its limit."""
    eligible: dict[int, int | None] = {}
    for event in story.events:
        if "eligible_t" in event:
            eligible[event["id"]] = event["eligible_t"]
        elif event["event"] == "start":
            first, window = eligible[event["id"]], story.submits[event["id"]]["window"]
            if first is None or event["t"] < first:
                yield f"{event['id']} starts at {event['t']}, before {first}"
            if window is not None and not within(story.pool["windows"][window], event["t"]):
                yield f"{event['id']} starts outside {window}"
    for run in story.runs:
        if (story.pool["horizon_s"] if run.end is None else run.end) - run.start > run.longest(latency):
            yield f"{run.id} runs longer than its limit"


def at_grace(story: Story, latency: int) -> Iterator[str]:
    """Only jobs that can resume are asked; they are gone at the end of their grace, and come back."""
    for run in story.runs:
        outcome = next(
            (
                e["outcome"]
                for e in story.events
                if (e["event"], e.get("id")) == ("end", run.id) and e["t"] == run.end
            ),
            None,
        )
        if run.asked is None:
            if outcome == "preempted":
                yield f"{run.id} was stopped without being asked"
            continue
        gone = run.asked["t"] + run.submit["grace_s"]
        if run.submit["kind"] == "session" or not run.submit["resumable"]:
            yield f"{run.id} cannot be stopped, and was asked"
        if run.end is None and story.pool["horizon_s"] > gone:
            yield f"{run.id} was asked and never left"
        if run.end is not None and (run.end > gone or (outcome == "preempted" and run.end != gone)):
            yield f"{run.id} left at {run.end}, not at {gone}"
        least = seconds(story.pool["policy"]["jobs"]["min_run_time"])
        if run.asked["cause"] in ("reclaim", "preempt") and run.asked["t"] < run.start + least:
            yield f"{run.id} was asked {run.asked['t'] - run.start} s after its start"


def lent(story: Story, latency: int) -> Iterator[str]:
    """A lent card is entered idle, when it is lent, with time left, and is back at the window's end."""
    partitions = story.pool["policy"]["partitions"]
    jobs = seconds(story.pool["policy"]["jobs"]["min_run_time"])
    for run in story.runs:
        partition = partitions[run.event["partition"]]
        if run.event["lent"] != (run.submit["kind"] not in partition["for"]):
            yield f"{run.id} says lent: {run.event['lent']}"
        if not run.event["lent"]:
            continue
        lend, t = story.lend(run), run.start
        windows = story.pool["windows"][lend["during"]]
        back = min(t1 for _, t1 in windows if t1 > t)
        if (run.end or story.pool["horizon_s"]) > back:
            yield f"{run.id} is not back at {back}"
        if back - t < jobs + run.submit["grace_s"]:
            yield f"{run.id} starts {back - t} s before it must leave"
        if not run.submit["resumable"] and t + run.submit["limit_s"] + latency > back:
            yield f"{run.id} cannot resume, and is not over at {back}"
        if within(windows, t):
            continue
        settled = max((t1 for _, t1 in windows if t1 <= t), default=-(10**9)) + seconds(lend["settle"])
        if not (lend["by_day"] and run.submit["resumable"] and t >= settled):
            yield f"{run.id} enters {run.event['partition']} by day at {t}"
        if headroom(story, run) < lend["headroom"]:
            yield f"{run.id} leaves {headroom(story, run)} slices for sessions at {t}"


def headroom(story: Story, run: Run) -> int:
    """Count the smallest slices free for sessions right after a start."""
    partition = story.pool["policy"]["partitions"][run.event["partition"]]
    shares = [cut["share"].split("/") for cut in partition["slices"] if "share" in cut]
    part = min((int(m) / int(n) for m, n in shares), default=1)
    free = {
        gpu["gpu"]: gpu["memory_mib"]
        for gpu in story.pool["gpus"]
        if gpu["partition"] == run.event["partition"]
    }
    for other in story.runs:
        if other.at(run.start) and other.event["partition"] == run.event["partition"]:
            for gpu, mib in other.cards.items():
                free[gpu] -= story.size[gpu] if other.submit["kind"] == "job" else mib
    return sum(max(0, mib) // int(story.size[gpu] * part) for gpu, mib in free.items())


def promised(story: Story, latency: int) -> Iterator[str]:
    """A promise moves later only for a named cause, and is kept."""
    known: dict[int, int] = {}
    for event in story.events:
        id = event.get("id")
        if event["event"] == "promise":
            later = event["start_t"] > known.get(id, event["start_t"])
            if later != bool(event["cause"]) and id in known:
                yield f"{id} is promised {event['start_t']} instead of {known[id]}, because {event['cause']}"
            known[id] = event["start_t"]
        elif event["event"] == "start" and event["t"] > known.pop(id, event["t"]):
            yield f"{id} starts at {event['t']}, later than promised"


def reclaimed(story: Story, latency: int) -> Iterator[str]:
    """Who takes cards back is inside quota with them, and those that give them are above theirs.

    What a taker's group starts at the same moment comes after it.
    """
    before: Counter[str] = Counter()
    moment = -1
    for event, held in held_before(story):
        if event["event"] == "start" and event["t"] > moment:
            before, moment = held.copy(), event["t"]
        if event["event"] != "stop_asked" or event["cause"] != "reclaim":
            continue
        taker, t = story.submits[event["taker"]], event["t"]
        request, card = taker["request"], max(story.size.values())
        need = 1000 * request["gpus"] or -(-1000 * request["memory_mib"] // card)
        least = before if t == moment else held
        if least[taker["group"]] + need > story.owed[taker["group"]]:
            yield f"{taker['id']} takes more at {t} than {taker['group']} is owed"
        if held[event["group"]] <= story.owed[event["group"]]:
            yield f"{event['id']} is asked at {t}, and {event['group']} is not above its quota"


def borrowed(story: Story, latency: int) -> Iterator[str]:
    """A job's start says whether its group is then above what it is owed; sessions never borrow."""
    runs = iter(story.runs)
    for event, held in held_before(story):
        if event["event"] == "start":
            group, run = event["group"], next(runs)
            above = held[group] + story.milli(run) > story.owed[group] and event["kind"] == "job"
            if event["borrowed"] != above:
                yield f"{event['id']} says borrowed: {event['borrowed']}"


def bounded(story: Story, latency: int) -> Iterator[str]:
    """No job reaches above a limit or takes what is not lent, nor borrows for long what cannot be stopped."""
    groups = story.pool["policy"]["groups"]
    most = seconds(story.pool["policy"]["jobs"]["borrow_max_time"])
    kept = {
        name: max(0, due - int(1000 * groups[name].get("lend", {}).get("gpus", due / 1000)))
        for name, due in story.owed.items()
    }
    shared = 1000 * len(story.size) - sum(kept.values())
    lasting: dict[int, Run] = {}
    runs = iter(story.runs)
    for event, held in held_before(story):
        if event["event"] == "end":
            lasting.pop(event["id"], None)
        if event["event"] != "start":
            continue
        run, name, t = next(runs), event["group"], event["t"]
        need = story.milli(run)
        session, limit = event["kind"] == "session", run.submit["limit_s"]
        after = held + Counter({name: need})
        if not session and after[name] > 1000 * groups[name].get("limit", {}).get("gpus", math.inf):
            yield f"{run.id} brings {name} above its limit"
        if not session and sum(max(0, milli - kept[group]) for group, milli in after.items()) > shared:
            yield f"{run.id} takes what nobody lends"
        if not session and (run.submit["resumable"] or limit <= most):
            continue
        stay = sum(
            story.milli(other)
            for other in lasting.values()
            if other.event["group"] == name
            and (other.submit["kind"] == "session" or other.start + other.longest(latency) - t > most)
        )
        if need + stay > story.owed[name]:
            yield f"{run.id} cannot be stopped, and brings what stays of {name} above its quota"
        lasting[run.id] = run


def held_before(story: Story) -> Iterator[tuple[Event, Counter[str]]]:
    """Yield each event, and what groups hold before it, in milli-GPU."""
    held: Counter[str] = Counter()
    live: dict[int, Run] = {}
    runs = iter(story.runs)
    for event in story.events:
        yield event, held
        if event["event"] == "start":
            run = live[event["id"]] = next(runs)
            held[event["group"]] += story.milli(run)
        elif event["event"] == "end" and event["id"] in live:
            held[event["group"]] -= story.milli(live.pop(event["id"]))


def resumed(story: Story, latency: int) -> Iterator[str]:
    """A job is completed once its work is done, and goes on with what it had done."""
    done: Counter[int] = Counter()
    since: dict[int, int] = {}
    for event in story.events:
        id, t = event.get("id"), event["t"]
        if event["event"] == "start":
            since[id] = t
        elif event["event"] == "resume":
            if event["done_s"] not in (0, done[id]):
                yield f"{id} goes on with {event['done_s']} s done, and had done {done[id]}"
            done[id] = event["done_s"]
        elif event["event"] == "end" and event["kind"] == "job":
            done[id] += max(0, t - since.pop(id) - latency)
            if (event["outcome"] == "completed") != (done[id] == story.submits[id]["duration_s"]):
                yield f"{id} is {event['outcome']} with {done[id]} s done"


def within(windows: Iterable[list[int]], t: int) -> bool:
    return any(t0 <= t < t1 for t0, t1 in windows)
