"""`make bench`: every measurement beside this machine's own floor; prints a table, writes bench.json."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.benchmarks import (
    bench_floors,
    bench_logins,
    bench_notebooks,
    bench_plan,
    bench_service,
    bench_simulator,
)
from tests.benchmarks.harness import Row, table, write

PARTS = ("plan", "simulator", "service", "notebooks", "logins")


def plan_rows(figures: dict[str, float]) -> list[Row]:
    """Return the scheduler's figures with their goals."""
    goals = {"p95 ms": "<= 50", "median ms": "<= 2000"}
    rows = []
    for name, value in figures.items():
        what, _, measure = name.rpartition(": ")
        goal = "" if what.startswith("fill") and measure == "median ms" else goals.get(measure, "")
        rows.append(Row(name, value, "ms" if measure.endswith("ms") else "", goal))
    return rows


def simulator_rows(figures: dict[str, float]) -> list[Row]:
    """Return the simulator's figures with their goals."""
    goals = {"a second": ">= 500", "seconds": "<= 120"}
    measures = ((name, value, name.rpartition(": ")[2]) for name, value in figures.items())
    return [
        Row(name, value, "s" if measure.startswith(("seconds", "processor")) else "", goals.get(measure, ""))
        for name, value, measure in measures
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "parts", nargs="*", default=[], help=f"which to run (default: all of {', '.join(PARTS)})"
    )
    parser.add_argument("--trace", type=Path, help="a public trace that the simulator plays, too")
    arguments = parser.parse_args()
    chosen = arguments.parts or list(PARTS)
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    floors = bench_floors.run()
    rows: list[Row] = floors.rows()
    if "plan" in chosen:
        rows += plan_rows(bench_plan.run())
    if "simulator" in chosen:
        rows += simulator_rows(bench_simulator.run(arguments.trace))
    if "service" in chosen:
        rows += bench_service.run(floors)
    if "notebooks" in chosen:
        rows += bench_notebooks.run()
    if "logins" in chosen:
        rows += bench_logins.run()
    print(table(rows))
    write(rows, Path("bench.json"))


main()
