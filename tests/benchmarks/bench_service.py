"""A real service with a real launcher: submit, burst, first line, and answers with 10,000 jobs queued."""

from __future__ import annotations

import itertools
import time

from tests.benchmarks.bench_floors import Floors
from tests.benchmarks.harness import Pool, Row, median, quantile, running_pool, seconds

QUEUED = 10_000
SLEEP = "import time\ntime.sleep(3600)\n"
STAMP = """
import time
first = time.time_ns()
import os
with open("stamps", "a") as stamps:
    stamps.write(f"{os.environ['GPUPOOL_JOB_ID']} {first} {time.time_ns()}\\n")
"""


def run(floors: Floors, *, queued: int = QUEUED) -> list[Row]:
    with running_pool() as pool:
        rows = burst(pool) + long_queue(pool, floors, queued)
    with running_pool() as pool:
        rows += first_line_idle(pool, floors)
    with running_pool("1x1x32GiB") as pool:
        rows += first_line_backlog(pool, floors)
    return rows


def fill_the_host(pool: Pool) -> None:
    """Occupy all that runs at once, so that whatever is submitted afterwards waits."""
    sleepers = pool.upload(SLEEP)
    for _ in range(64):
        job = pool.submit(pool.body(sleepers))
        time.sleep(0.3)
        if pool.call("GET", f"/jobs/{job['id']}")["state"] == "queued":
            return
    raise RuntimeError("the host never filled up")


def burst(pool: Pool) -> list[Row]:
    """1,000 submits as fast as one connection carries them; every one must be in the queue afterwards."""
    fill_the_host(pool)
    body = pool.body(pool.upload("pass\n"), name="burst")
    start = time.perf_counter()
    ids = [pool.submit(body)["id"] for _ in range(1000)]
    elapsed = time.perf_counter() - start
    waiting = {job["id"] for job in pool.call("GET", "/queue")["waiting"]}
    lost = len(set(ids) - waiting)
    return [
        Row("burst of 1,000 submits: accepted", 1000 / elapsed, "/s", ">= 200"),
        Row("burst of 1,000 submits: lost", lost, "jobs", "0"),
    ]


def long_queue(pool: Pool, floors: Floors, queued: int) -> list[Row]:
    body = pool.body(pool.upload("print(1)\n"), name="deep")
    present = len(pool.call("GET", "/queue")["waiting"])
    for _ in range(queued - present):
        last = pool.submit(body)["id"]
    time.sleep(5)
    submits = [seconds(pool.submit, body) * 1e3 for _ in range(500)]
    asked = range(last - 400, last, 2)
    whys = [seconds(pool.call, "GET", f"/jobs/{job}") * 1e3 for job in asked]
    answer = pool.call("GET", f"/jobs/{last}")["waiting"]
    if not (answer and answer["position"] and answer["expected_start"]):
        raise RuntimeError(f"no position and expected start for job {last}: {answer}")
    middle = median(submits)
    floor = floors.commit_ms
    return [
        Row(
            "submit with 10,000 queued: median",
            middle,
            "ms",
            "<= 5",
            f"commit {floor:.2f} ms",
            middle / floor,
        ),
        Row("submit with 10,000 queued: p99", quantile(submits, 0.99), "ms", "<= 50"),
        Row("why, position, expected start, 10,000 queued: p95", quantile(whys, 0.95), "ms", "<= 200"),
    ]


def stamps(pool: Pool) -> dict[int, tuple[int, int]]:
    """First and last line of each job's script, in nanoseconds."""
    lines = (pool.home / "stamps").read_text().splitlines() if (pool.home / "stamps").exists() else []
    return {int(job): (int(first), int(last)) for job, first, last in (line.split() for line in lines)}


def first_line_idle(pool: Pool, floors: Floors, count: int = 50) -> list[Row]:
    body = pool.body(pool.upload(STAMP), time="1m")
    delays = []
    for _ in range(count):
        job = pool.submit(body)["id"]
        replied = time.time_ns()
        pool.wait_for(job)
        delays.append((stamps(pool)[job][0] - replied) / 1e6)
    return rows_of("first line of a script after the reply, idle pool", delays, floors)


def first_line_backlog(pool: Pool, floors: Floors, count: int = 50) -> list[Row]:
    """One card: each job follows another. From the last line of one to the first line of the next."""
    body = pool.body(pool.upload(STAMP), time="1m")
    ids = [pool.submit(body)["id"] for _ in range(count + 1)]
    pool.wait_for(ids[-1])
    seen = stamps(pool)
    delays = [(seen[after][0] - seen[before][1]) / 1e6 for before, after in itertools.pairwise(ids)]
    return rows_of("first line after the last line of the job before, backlog", delays, floors)


def rows_of(name: str, delays: list[float], floors: Floors) -> list[Row]:
    middle, floor = median(delays), floors.process_ms
    return [
        Row(f"{name}: median", middle, "ms", "<= 100", f"bare process {floor:.1f} ms", middle / floor),
        Row(f"{name}: p95", quantile(delays, 0.95), "ms"),
    ]
