"""`make bench`: every measurement beside this machine's own floor; prints a table, writes bench.json."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.benchmarks import bench_floors, bench_logins, bench_notebooks, bench_plan, bench_service
from tests.benchmarks.harness import Row, table, write

PARTS = ("plan", "service", "notebooks", "logins")


def plan_rows(figures: dict[str, float]) -> list[Row]:
    """Return the scheduler's figures with their goals."""
    goals = {"p95 ms": "<= 50", "median ms": "<= 2000"}
    rows = []
    for name, value in figures.items():
        what, _, measure = name.rpartition(": ")
        goal = "" if what.startswith("fill") and measure == "median ms" else goals.get(measure, "")
        rows.append(Row(name, value, "ms" if measure.endswith("ms") else "", goal))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "parts", nargs="*", default=[], help=f"which to run (default: all of {', '.join(PARTS)})"
    )
    chosen = parser.parse_args().parts or list(PARTS)
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    floors = bench_floors.run()
    rows: list[Row] = floors.rows()
    if "plan" in chosen:
        rows += plan_rows(bench_plan.run())
    if "service" in chosen:
        rows += bench_service.run(floors)
    if "notebooks" in chosen:
        rows += bench_notebooks.run()
    if "logins" in chosen:
        rows += bench_logins.run()
    print(table(rows))
    write(rows, Path("bench.json"))


main()
