"""Public traces, replayed: the scheduler beside first come, first served and EASY backfill.

    python -m tests.benchmarks.bench_replays cluster05 TRACES/itp-2021/cluster05.csv [--limits 5]
    python -m tests.benchmarks.bench_replays philly TRACES/philly-2017/philly.csv [--limits 5]

Each group is owed cards in proportion to its GPU time, at least a node's. The two classical schedulers know
no quotas; "without quotas" is the scheduler itself when every group owns everything. Times are those of the
virtual clock. `--keep FOLDER` writes the events.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

from jupyter_gpupool.commands.simulating import moment
from jupyter_gpupool.devices.simulated import SimulatedPool
from jupyter_gpupool.policy.load import load_policy
from jupyter_gpupool.simulator.engine import POLICY, Discipline, Setting
from jupyter_gpupool.simulator.figures import Life, lives
from jupyter_gpupool.simulator.journal import write_events
from jupyter_gpupool.simulator.peers import EASY, FIFO, without_limits
from jupyter_gpupool.simulator.play import Result, play
from jupyter_gpupool.simulator.quotas import policy_for
from jupyter_gpupool.simulator.scenarios import MONDAY_9
from jupyter_gpupool.simulator.workload import Workload, between, read_workload, with_limits
from tests.benchmarks.harness import Row, table
from tests.simulator.outsider import Story, promised

UTC = ZoneInfo("UTC")
LARGE = 8
"""Jobs of so many cards are looked at by themselves."""
DISCIPLINES = {
    "policy": POLICY,
    "without quotas": replace(POLICY, name="without quotas", rules=without_limits),
    "FIFO": FIFO,
    "EASY": EASY,
}


WAIT, SLOWDOWN = "wait, mean s", "bounded slowdown, mean"
LONGEST = f"longest wait of {LARGE} cards, s"
ETA = "error of expected starts, median"
GOALS = {
    "FIFO": {WAIT: "< 1", SLOWDOWN: "< 1", LONGEST: "<= 1.05"},
    "EASY": {WAIT: "<= 1.1", SLOWDOWN: "<= 1.0"},
}


@dataclass(frozen=True)
class Replay:
    """A part of a trace, and the pool it is played on."""

    pool: str
    first: str | None = None
    until: str | None = None

    def workload(self, path: Path) -> Workload:
        """Return what is submitted in the days meant."""
        whole = read_workload(path, UTC)
        if self.first is None or self.until is None or whole.start is None:
            return whole
        return between(whole, *(moment(day, UTC) - whole.start for day in (self.first, self.until)))


REPLAYS = {
    "cluster05": Replay("2x8x32GiB"),
    "philly": Replay("80x8x32GiB", "2017-09-18", "2017-10-16"),
}


@dataclass(frozen=True)
class Played:
    """What is compared of one run."""

    figures: dict[str, float | None]
    longest: int
    broken: list[str]
    cpu_s: float

    @property
    def compared(self) -> dict[str, float]:
        """Return what has a goal beside other schedulers."""
        wait, slowdown = self.figures["job_wait_mean_s"], self.figures["bounded_slowdown_mean"]
        return {WAIT: wait or 0, SLOWDOWN: slowdown or 0, LONGEST: self.longest}


def played(name: str, workload: Workload, pool: str, policy: str, every: int, keep: Path | None) -> Played:
    """Play a workload under one discipline."""
    begun = time.process_time()
    discipline: Discipline = DISCIPLINES[name]
    setting = Setting(
        SimulatedPool.parse(pool),
        load_policy(policy),
        workload.start or MONDAY_9,
        plan_every=every,
        discipline=discipline,
    )
    result = play(name, setting, workload)
    if keep is not None:
        write_events(keep / f"{name}.jsonl", result.pool, result.events)
    return Played(result.figures, longest_wait(result), broken(result), time.process_time() - begun)


def longest_wait(result: Result) -> int:
    """Return the longest wait of a large job."""
    there: Iterable[Life] = lives(result.pool, result.events).values()
    return max((life.wait or 0 for life in there if life.gpus == LARGE), default=0)


def broken(result: Result) -> list[str]:
    """Return a sentence for each promise that was broken, or moved later without a cause."""
    return list(promised(Story(result.pool, result.events), 0))


def rows(found: dict[str, Played]) -> list[Row]:
    """Return each discipline's figures; those of the scheduler beside the two classical ones'."""
    lines = []
    for name, one in found.items():
        ours = name not in GOALS
        for what, value in one.compared.items():
            peers = [peer for peer in GOALS if ours and peer in found and what in GOALS[peer]]
            for peer in peers or [""]:
                beside = found[peer].compared[what] if peer else 0
                goal, ratio = (GOALS[peer][what], value / beside) if beside else ("", None)
                lines.append(Row(f"{name}: {what}", value, "", goal, peer, ratio))
        if ours:
            error = 100 * (one.figures["eta_error_median"] or 0)
            lines.append(Row(f"{name}: {ETA}", error, "%", "<= 25 with exact limits"))
            lines.append(Row(f"{name}: promises broken", len(one.broken), "", "0"))
            lines.append(Row(f"{name}: jobs stopped for others", one.figures["preemptions"] or 0, ""))
        lines.append(Row(f"{name}: CPU time", one.cpu_s, "s"))
    return lines


def run(replay: Replay, given: argparse.Namespace) -> dict[str, Played]:
    """Play a replay under several disciplines, on as many processors."""
    workload = replay.workload(given.trace)
    policy = policy_for(workload.tasks, SimulatedPool.parse(replay.pool))
    drawn = with_limits(workload, given.limits, seed=1) if given.limits > 1 else workload
    more = {"workload": drawn, "pool": replay.pool, "policy": policy}
    one = partial(played, **more, every=given.plan_every, keep=given.keep)
    names = given.only or list(DISCIPLINES)
    with ProcessPoolExecutor() as workers:
        return dict(zip(names, workers.map(one, names), strict=True))


def main() -> None:
    keep_lines = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=keep_lines)
    parser.add_argument("replay", choices=REPLAYS)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--limits", type=float, default=1, help="limit = duration × U(1, this); 1: exact")
    parser.add_argument("--only", choices=DISCIPLINES, action="append")
    parser.add_argument("--plan-every", type=int, default=3600, metavar="SECONDS")
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    given = parser.parse_args()
    if given.keep:
        given.keep.mkdir(parents=True, exist_ok=True)
    found = run(REPLAYS[given.replay], given)
    print(table(rows(found)))
    for name, one in found.items():
        for sentence in one.broken[:10]:
            print(f"{name}: {sentence}")


if __name__ == "__main__":
    main()
