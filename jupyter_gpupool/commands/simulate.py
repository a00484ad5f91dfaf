"""``jupyter gpupool simulate``: what a policy would do with a workload, played on a virtual clock.

Owns: the words of the command, and printing and writing what came of it. Asks no service, changes no pool.
Never: a figure's meaning, or how time passes; that is the simulator's.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jupyter_gpupool.client.arguments import Parser
from jupyter_gpupool.client.errors import PoolError, Refused
from jupyter_gpupool.client.text import plural, table
from jupyter_gpupool.commands import Command, answer, remark
from jupyter_gpupool.commands.simulating import EXACT, MONTH, plays
from jupyter_gpupool.devices.base import DevicesError
from jupyter_gpupool.ledger.errors import LedgerError
from jupyter_gpupool.policy.problems import PolicyError
from jupyter_gpupool.policy.units import UnitError
from jupyter_gpupool.simulator.figures import LABELS, shown
from jupyter_gpupool.simulator.installed import INSTALLED
from jupyter_gpupool.simulator.journal import write_events
from jupyter_gpupool.simulator.play import Play, Result, play_all, spread
from jupyter_gpupool.simulator.report import html
from jupyter_gpupool.simulator.scenarios import SCENARIOS
from jupyter_gpupool.simulator.workload import WorkloadError, write_workload


def _arguments(parser: Parser) -> None:
    add = parser.add_argument
    scenarios = "; ".join(f"{name}: {found.what}" for name, found in SCENARIOS.items())
    what = f"a CSV file; {INSTALLED}: what this machine's pool was asked for; or a built-in scenario"
    add("workload", metavar="WORKLOAD", help=f"{what} ({scenarios})")
    add("--policy", metavar="FILE", help="the policy; without one, each group's quota follows its work")
    add("--compare", metavar="FILE", action="append", default=[], help="another policy beside it; repeatable")
    add("--peers", action="store_true", help="beside it, FIFO and EASY backfill without quotas")
    add("--more-cards", metavar="[NODE:]N", action="append", default=[], help="N more cards, in a node")
    add("--last", metavar="TIME", help=f"with {INSTALLED}: how far back (default: {MONTH})")
    add("--start", metavar="TIME", help="when it begins (with dates: on their first day; else a Monday)")
    add("--horizon", metavar="TIME", help="how long to play, such as 7d; without it, until all is over")
    add("--from", dest="first", metavar="DATE", help="leave out what is submitted before this day")
    add("--until", metavar="DATE", help="leave out what is submitted from this day on")
    add("--limits", metavar="N", default=EXACT, help="limit = duration × a factor drawn from 1 to N")
    add("--poisson", metavar="TRACE", help="in place of the jobs: random arrivals of jobs like this trace's")
    add("--seed", type=int, default=1, metavar="N", help="for what is drawn (default: 1)")
    add("--seeds", type=int, default=1, metavar="N", help="play N times with seeds from --seed on")
    add("--start-latency", metavar="TIME", default="0s", help="from a lease to the beginning of its work")
    add("--resume", choices=("keep", "lose"), default="keep", help="whether a stopped job keeps its work")
    add("--drain", metavar="NODE@A[-B]", action="append", default=[], help="a node takes no work from A to B")
    add("--then", metavar="TIME=FILE", action="append", default=[], help="another policy from that time on")
    add("--plan-every", metavar="TIME", default="1h", help="a whole plan so often; 0s: exact, and slower")
    add("--beside", action="store_true", help="the same with a slow start, and with random jobs, ten times")
    add("--events", metavar="FILE", help="write every event, as JSON Lines")
    add("--report", metavar="FILE", help="write a report with plots, as one HTML file")
    add("--export", metavar="FILE", help="write the workload, as a CSV file")


def _run(options: argparse.Namespace) -> int:
    try:
        found = plays(options)
        for sentence in found[0].setting.policy.inactive():
            remark(sentence)
        for file in filter(None, (options.events, options.report, options.export)):
            _try_to_write(Path(file))
        results = play_all(found)
        _write(options, found[0], results)
    except (WorkloadError, UnitError, DevicesError) as error:
        raise Refused("invalid_option", str(error)) from None
    except PolicyError as error:
        raise PoolError("policy_invalid", str(error)) from None
    except LedgerError as error:
        raise PoolError("unavailable", str(error)) from None
    except OSError as error:
        raise Refused("invalid_option", f"{error.filename} cannot be written: {error.strerror}.") from None
    for runs in results:
        if runs[0].refused:
            left_out = plural(runs[0].refused, "row")
            remark(f"{runs[0].name}: {left_out} left out that could never run. {runs[0].because}")
    answer(options, _reply(options, results), _lines(results))
    return 0


def _try_to_write(path: Path) -> None:
    """Raise OSError for a file that cannot be written, before there is anything to write."""
    there = path.exists()
    if there and not (path.is_file() or path.is_dir()):
        return  # a pipe is opened once
    with path.open("a"):
        pass
    if not there:
        path.unlink()


def _write(options: argparse.Namespace, first: Play, results: list[list[Result]]) -> None:
    if options.events:
        write_events(Path(options.events), results[0][0].pool, results[0][0].events)
    if options.report:
        text = html([runs[0] for runs in results], options.workload)
        Path(options.report).write_text(text, encoding="utf-8")
    if options.export:
        write_workload(Path(options.export), first.workloads[0])


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
