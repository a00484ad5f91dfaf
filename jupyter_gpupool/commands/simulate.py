"""``jupyter gpupool simulate``: what a policy would do with a workload, played on a virtual clock.

Owns: reading what was typed, and printing and writing what came of it. Asks no service, and changes no pool.
Never: a figure's meaning, or how time passes; that is the simulator's.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from jupyter_gpupool.client.arguments import Parser
from jupyter_gpupool.client.errors import PoolError, Refused
from jupyter_gpupool.client.text import plural, table
from jupyter_gpupool.commands import Command, answer, remark
from jupyter_gpupool.devices.base import DevicesError
from jupyter_gpupool.devices.simulated import SimulatedPool
from jupyter_gpupool.policy.load import load_policy
from jupyter_gpupool.policy.model import Policy
from jupyter_gpupool.policy.problems import PolicyError
from jupyter_gpupool.policy.units import UnitError, parse_duration
from jupyter_gpupool.scheduler.timeline import FOREVER
from jupyter_gpupool.simulator.engine import Setting
from jupyter_gpupool.simulator.figures import LABELS, shown
from jupyter_gpupool.simulator.journal import write_events
from jupyter_gpupool.simulator.peers import EASY, FIFO
from jupyter_gpupool.simulator.play import Result, play, spread
from jupyter_gpupool.simulator.quotas import policy_for
from jupyter_gpupool.simulator.report import html
from jupyter_gpupool.simulator.scenarios import MONDAY_9, SCENARIOS, SITE, poisson
from jupyter_gpupool.simulator.workload import (
    Workload,
    WorkloadError,
    between,
    read_workload,
    with_limits,
)

EXACT = "exact"
DERIVED = "quota by work"


def _arguments(parser: Parser) -> None:
    add = parser.add_argument
    scenarios = "; ".join(f"{name}: {found.what}" for name, found in SCENARIOS.items())
    add("workload", metavar="WORKLOAD", help=f"a CSV file, or a built-in scenario ({scenarios})")
    add("--policy", metavar="FILE", help="the policy; without one, each group's quota follows its work")
    add("--compare", metavar="FILE", action="append", default=[], help="another policy beside it; repeatable")
    add("--peers", action="store_true", help="beside it, FIFO and EASY backfill without quotas")
    add("--start", metavar="TIME", help="when it begins (a trace with dates: its first day; else a Monday)")
    add("--horizon", metavar="TIME", help="how long to play, such as 7d; without it, until all is over")
    add("--from", dest="first", metavar="DATE", help="leave out what a trace submits before this day")
    add("--until", dest="last", metavar="DATE", help="leave out what a trace submits from this day on")
    add("--limits", metavar="N", default=EXACT, help="limit = duration × a factor drawn from 1 to N")
    add("--poisson", metavar="TRACE", help="in place of the jobs: random arrivals of jobs like this trace's")
    add("--seed", type=int, default=1, metavar="N", help="for what is drawn (default: 1)")
    add("--seeds", type=int, default=1, metavar="N", help="play N times with seeds from --seed on")
    add("--start-latency", metavar="TIME", default="0s", help="from a lease to the beginning of its work")
    add("--resume", choices=("keep", "lose"), default="keep", help="whether a stopped job keeps its work")
    add("--plan-every", metavar="TIME", default="1h", help="a whole plan so often; 0s: exact, and slower")
    add("--events", metavar="FILE", help="write every event, as JSON Lines")
    add("--report", metavar="FILE", help="write a report with plots, as one HTML file")


def _run(options: argparse.Namespace) -> int:
    try:
        results = _results(options)
        if options.events:
            write_events(Path(options.events), results[0][0].pool, results[0][0].events)
        if options.report:
            text = html([runs[0] for runs in results], options.workload)
            Path(options.report).write_text(text, encoding="utf-8")
    except (WorkloadError, UnitError, DevicesError) as error:
        raise Refused("invalid_option", str(error)) from None
    except PolicyError as error:
        raise PoolError("policy_invalid", str(error)) from None
    except OSError as error:
        raise Refused("invalid_option", f"{error.filename} cannot be written: {error.strerror}.") from None
    for runs in results:
        if runs[0].refused:
            left_out = plural(runs[0].refused, "row")
            remark(f"{runs[0].name}: {left_out} left out that could never run. {runs[0].because}")
    answer(options, _reply(options, results), _lines(results))
    return 0


def _results(options: argparse.Namespace) -> list[list[Result]]:
    """Play every policy with every seed; the first is the one that was asked for."""
    scenario = SCENARIOS.get(options.workload)
    pool = SimulatedPool.parse(options.simulate or (scenario.pool if scenario else SITE))
    zone = ZoneInfo("UTC")
    named = _policy(options.policy) if options.policy else None
    workload = scenario.workload if scenario else _read(options, named.zone if named else zone)
    horizon = scenario.horizon if scenario else None
    if options.horizon:
        horizon = parse_duration(options.horizon, what="--horizon")
    if named is None:
        named = load_policy(scenario.policy if scenario else policy_for(workload.tasks, pool))
    for sentence in named.inactive():
        remark(sentence)
    name = options.policy or options.workload if scenario or options.policy else DERIVED
    latency = parse_duration(options.start_latency, what="--start-latency", zero=True)
    start = MONDAY_9 if workload.start is None else workload.start
    if options.start:
        start = _time(options.start, named.zone)
    plan_every = parse_duration(options.plan_every, what="--plan-every", zero=True)
    setting = Setting(pool, named, start, horizon, latency, options.resume, plan_every)
    settings = [(name, setting)]
    settings += [(path, replace(setting, policy=_policy(path))) for path in options.compare]
    if options.peers:
        settings += [(peer.name, replace(setting, discipline=peer)) for peer in (FIFO, EASY)]
    seeds = range(options.seed, options.seed + max(1, options.seeds))
    drawn = [_drawn(options, workload, horizon, seed) for seed in seeds]
    return [[play(name, setting, workload) for workload in drawn] for name, setting in settings]


def _read(options: argparse.Namespace, zone: ZoneInfo) -> Workload:
    path = Path(options.workload)
    if not path.suffix and not path.exists():
        raise WorkloadError(
            f"There is no file and no scenario {options.workload!r}. Scenarios are {', '.join(SCENARIOS)}."
        )
    workload = read_workload(path, zone)
    if options.first or options.last:
        if workload.start is None:
            raise WorkloadError(f"{options.workload} has no dates, so --from and --until cannot cut it.")
        first = max(0, _time(options.first, zone) - workload.start) if options.first else 0
        last = _time(options.last, zone) - workload.start if options.last else FOREVER
        workload = between(workload, first, last)
    if not workload.tasks:
        raise WorkloadError(f"{options.workload} has nothing to play.")
    return workload


def _drawn(options: argparse.Namespace, workload: Workload, horizon: int | None, seed: int) -> Workload:
    """Return the workload with what is left to chance drawn by a seed."""
    if options.poisson:
        trace = read_workload(Path(options.poisson), ZoneInfo("UTC"))
        workload = poisson(workload, trace, horizon or workload.tasks[-1].submit, seed)
    if options.limits == EXACT:
        return workload
    try:
        most = float(options.limits)
    except ValueError:
        most = 0.0
    if not 1 <= most < 1000:
        raise UnitError(f"--limits {options.limits} is no factor.", "Write a number from 1 to 999, or exact.")
    return with_limits(workload, most, seed)


def _policy(path: str) -> Policy:
    try:
        return load_policy(Path(path).read_text(encoding="utf-8"), source=path)
    except (OSError, UnicodeDecodeError):
        raise Refused("invalid_option", f"{path} cannot be read as a policy file.") from None


def _time(text: str, zone: ZoneInfo) -> int:
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp())
    except ValueError:
        raise UnitError(f'"{text}" is not a time.', 'Write it as 2017-09-18 or "2017-09-18 09:00".') from None


def _reply(options: argparse.Namespace, results: list[list[Result]]) -> dict[str, Any]:
    """Return the first policy's figures, and the others' by name; over several seeds, the medians."""
    replies = []
    for runs in results:
        found = spread(runs)
        reply = {"policy": runs[0].name, **{name: median for name, (median, _, _) in found.items()}}
        reply["refused"] = runs[0].refused
        if len(runs) > 1:
            reply["spread"] = {name: [least, greatest] for name, (_, least, greatest) in found.items()}
        replies.append(reply)
    return {"workload": options.workload, "seed": options.seed, **replies[0], "compare": replies[1:]}


def _lines(results: list[list[Result]]) -> Iterator[str]:
    """Yield a table: a row for each figure, a column for each policy."""
    columns = ("", *(f"#{runs[0].name}" for runs in results))
    found = [spread(runs) for runs in results]
    rows = [[label, *(_cell(name, *one[name]) for one in found)] for name, label in LABELS.items()]
    yield from table(columns, rows)


def _cell(name: str, median: float | None, least: float | None, greatest: float | None) -> str:
    text = shown(name, median)
    return text if least == greatest else f"{text} ({shown(name, least)} to {shown(name, greatest)})"


SIMULATE = Command(_run, _arguments)
