"""What was typed after ``simulate``, as simulations to play.

Owns: which pool, workload, policies and changes are meant, and what stands beside what was asked for.
Never: playing, or printing.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.devices.base import Hardware
from jupyter_gpupool.devices.find import open_pool
from jupyter_gpupool.devices.simulated import SimulatedPool
from jupyter_gpupool.policy.builtin import builtin_policy
from jupyter_gpupool.policy.load import load_policy
from jupyter_gpupool.policy.model import Policy
from jupyter_gpupool.policy.units import UnitError, parse_count, parse_duration
from jupyter_gpupool.scheduler.timeline import FOREVER
from jupyter_gpupool.service.config import ServiceConfig
from jupyter_gpupool.simulator.engine import Change, Setting
from jupyter_gpupool.simulator.installed import INSTALLED, installed, with_more
from jupyter_gpupool.simulator.peers import EASY, FIFO
from jupyter_gpupool.simulator.play import Play
from jupyter_gpupool.simulator.quotas import policy_for
from jupyter_gpupool.simulator.scenarios import MONDAY_9, SCENARIOS, SITE, TYPICAL, Scenario, poisson
from jupyter_gpupool.simulator.workload import Workload, WorkloadError, between, read_workload, with_limits

EXACT, MONTH = "exact", "30d"
DERIVED = "quota by work"
ANY_NODE = "more"
SLOW_START_S, SEEDS = 60, 10
UTC = ZoneInfo("UTC")


@dataclass(frozen=True)
class Source:
    """What is asked of a pool, the pool, and the policy's text; with what a scenario says of them."""

    workload: Workload
    pool: Hardware
    policy: Callable[[], str]
    name: str
    horizon: int | None = None


def plays(options: argparse.Namespace) -> list[Play]:
    """Return what is to be played, what was asked for first.

    Raises
    ------
    WorkloadError, UnitError, DevicesError, PolicyError, LedgerUnavailable
        Something that was typed means nothing; the text says what, and what to write.
    """
    named = _policy(options.policy) if options.policy else None
    source = _source(options, named.zone if named else UTC)
    policy = named or load_policy(source.policy())
    horizon = parse_duration(options.horizon, what="--horizon") if options.horizon else source.horizon
    start = MONDAY_9 if source.workload.start is None else source.workload.start
    setting = Setting(
        pool=source.pool,
        policy=policy,
        start=moment(options.start, policy.zone) if options.start else start,
        horizon=horizon,
        latency=parse_duration(options.start_latency, what="--start-latency", zero=True),
        resume=options.resume,
        plan_every=parse_duration(options.plan_every, what="--plan-every", zero=True),
        changes=tuple(_changes(options, source.pool)),
    )
    drawn = [_drawn(options, source.workload, horizon, seed) for seed in _seeds(options, options.seeds)]
    settings = [(options.policy or source.name, setting)]
    settings += [(path, replace(setting, policy=_policy(path))) for path in options.compare]
    if options.peers:
        settings += [(peer.name, replace(setting, discipline=peer)) for peer in (FIFO, EASY)]
    found = [Play(name, setting, drawn) for name, setting in settings]
    if options.beside:
        found += _beside(options, found[0])
    return found


def moment(text: str, zone: ZoneInfo) -> int:
    """Read a day, or a time of one, on the clocks of a zone."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UnitError(f'"{text}" is not a time.', 'Write it as 2017-09-18 or "2017-09-18 09:00".') from None
    return int((found if found.tzinfo else found.replace(tzinfo=zone)).timestamp())


def _source(options: argparse.Namespace, zone: ZoneInfo) -> Source:
    if options.last and options.workload != INSTALLED:
        raise UnitError(
            f"--last {options.last} says how far back {INSTALLED} goes, not {options.workload}.",
            "Leave it out; --from and --until cut what has dates.",
        )
    scenario = SCENARIOS.get(options.workload)
    if scenario is not None:
        if options.first or options.until:
            raise UnitError(
                f"--from and --until do not cut {options.workload}.", "For less of it: --horizon 2d."
            )
        return _of_scenario(options, scenario)
    if options.workload == INSTALLED:
        return _of_installed(options, zone)
    workload = _cut(options, _read(options.workload, zone), zone)
    pool = _pool(options, SimulatedPool.parse(options.simulate or SITE))
    return Source(workload, pool, lambda: policy_for(workload.tasks, pool), DERIVED)


def _of_scenario(options: argparse.Namespace, scenario: Scenario) -> Source:
    pool = _pool(options, SimulatedPool.parse(options.simulate or scenario.pool))
    return Source(scenario.workload, pool, lambda: scenario.policy, options.workload, scenario.horizon)


def _of_installed(options: argparse.Namespace, zone: ZoneInfo) -> Source:
    """Return the past of the pool that the environment names, on its cards, under its policy."""
    config = ServiceConfig.from_environment(simulate=options.simulate)
    until = int(time.time())
    workload = installed(
        config.ledger_file, until - parse_duration(options.last or MONTH, what="--last"), until
    )
    pool, file = _pool(options, open_pool(config.simulate)), config.policy_file

    def policy() -> str:
        return _text(str(file)) if file.exists() else builtin_policy(pool.cards(), pool.nodes())

    return Source(_cut(options, workload, zone), pool, policy, INSTALLED)


def _pool(options: argparse.Namespace, pool: Hardware) -> Hardware:
    more: Counter[str] = Counter()
    for text in options.more_cards:
        node, _, count = text.rpartition(":")
        more[node or ANY_NODE] += parse_count(count, what="--more-cards", minimum=1)
    return with_more(pool, more) if more else pool


def _read(name: str, zone: ZoneInfo) -> Workload:
    path = Path(name)
    if not path.suffix and not path.exists():
        raise WorkloadError(
            f"There is no file and no scenario {name!r}. Scenarios are {', '.join(SCENARIOS)}; "
            f"{INSTALLED} is what this machine's pool was asked for."
        )
    return read_workload(path, zone)


def _cut(options: argparse.Namespace, workload: Workload, zone: ZoneInfo) -> Workload:
    if options.first or options.until:
        if workload.start is None:
            raise WorkloadError(f"{options.workload} has no dates, so --from and --until cannot cut it.")
        first = max(0, moment(options.first, zone) - workload.start) if options.first else 0
        last = moment(options.until, zone) - workload.start if options.until else FOREVER
        workload = between(workload, first, last)
    if not workload.tasks:
        raise WorkloadError(f"{options.workload} has nothing to play.")
    return workload


def _seeds(options: argparse.Namespace, count: int) -> range:
    if count < 1:
        raise UnitError(f"--seeds {count} plays nothing.", "Write 1 or more.")
    return range(options.seed, options.seed + count)


def _drawn(options: argparse.Namespace, workload: Workload, horizon: int | None, seed: int) -> Workload:
    """Return the workload with what is left to chance drawn by a seed."""
    if options.poisson:
        trace = read_workload(Path(options.poisson), UTC)
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


def _beside(options: argparse.Namespace, first: Play) -> Iterator[Play]:
    """Yield the same with a slow start, and with random arrivals of jobs as long as those of a trace."""
    setting, workload = first.setting, first.workloads[0]
    horizon = setting.horizon or workload.tasks[-1].submit
    yield Play("start latency 60 s", replace(setting, latency=SLOW_START_S), first.workloads)
    random = [poisson(workload, TYPICAL, horizon, seed) for seed in _seeds(options, SEEDS)]
    yield Play("random jobs", setting, random)


def _changes(options: argparse.Namespace, pool: Hardware) -> Iterator[Change]:
    """Yield what becomes different on the way, in order of time."""
    found = [Change(at, policy=_policy(path)) for at, path in map(_then, options.then)]
    edges = [edge for text in options.drain for edge in _drain(text, pool)]
    away: dict[str, str] = {}
    for at, node, begins in sorted(edges):
        away = {name: why for name, why in away.items() if name != node}
        if begins:
            away[node] = "drained"
        found.append(Change(at, drains=away))
    yield from sorted(found, key=lambda change: change.at)


def _drain(text: str, pool: Hardware) -> Iterator[tuple[int, str, bool]]:
    """Yield when a node begins to take no work, and when it takes work again."""
    node, _, span = text.rpartition("@")
    names = [found.name for found in pool.nodes()]
    if node not in names:
        what = f"the unknown node {node!r}" if node else "no node"
        raise UnitError(f'--drain "{text}" names {what}.', f"Write NODE@2d-3d; there are {', '.join(names)}.")
    begin, _, end = span.partition("-")
    first = parse_duration(begin, what="--drain", zero=True)
    yield first, node, True
    if end:
        last = parse_duration(end, what="--drain")
        if last <= first:
            raise UnitError(f'--drain "{text}" ends before it begins.', "Write NODE@2d-3d, or NODE@2d.")
        yield last, node, False


def _then(text: str) -> tuple[int, str]:
    at, _, path = text.partition("=")
    if not path:
        raise UnitError(f'--then "{text}" names no policy.', "Write TIME=FILE, such as 3d=new.yaml.")
    return parse_duration(at, what="--then", zero=True), path


def _policy(path: str) -> Policy:
    return load_policy(_text(path), source=path)


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise Refused("invalid_option", f"{path} cannot be read as a policy file.") from None
