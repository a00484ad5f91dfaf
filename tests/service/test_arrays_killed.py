"""A service that is killed at any moment of an array's life loses none of its tasks and runs none twice."""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import Any

from jupyter_gpupool.ledger.arrays import FRESH

COUNT = FRESH + 24
TASK = {"gpus": 0, "cpus": 0.01, "mem": "1MiB"}


def test_every_task_runs_once_whenever_the_service_is_killed(spawn: Any) -> None:
    moments = random.Random(11)
    service = spawn("1x2x8GiB")
    marks = service.home.path / "marks"
    array = service.call.submit(
        f"echo $GPUPOOL_ARRAY_INDEX >> {marks}", array=f"0-{COUNT - 1}", resources=TASK
    )
    for _ in range(3):
        time.sleep(moments.uniform(0.0, 0.4))
        service.kill()
        service = spawn("1x2x8GiB")
    ended = service.call.wait(array["id"], patience=60)
    assert ended["array"]["states"] == {"completed": COUNT}
    assert Counter(map(int, marks.read_text().split())) == Counter(range(COUNT))
    jobs = service.call("GET", f"jobs?array={array['id']}&limit=10000").body["jobs"]
    assert [job["array_index"] for job in jobs] == list(range(COUNT))
    assert len({job["id"] for job in jobs}) == COUNT


def test_a_pool_that_is_stopped_leaves_nothing_of_it_to_run_later(spawn: Any) -> None:
    service = spawn()
    array = service.call.submit("exec sleep 100", array=f"0-{COUNT - 1}")
    service.call.wait(array["id"], "running")
    service.stop()
    service = spawn()
    ended = service.call.job(array["id"])
    assert ended["array"]["states"] == {"cancelled": COUNT}
    assert service.call("GET", f"jobs/{array['id']}[{COUNT - 1}]").body["outcome"] == "The pool was stopped."
