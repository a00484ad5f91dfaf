"""Who is asked to stop has the whole grace, though the program above it is gone at once."""

from __future__ import annotations

import signal

import pytest

pytestmark = pytest.mark.asyncio

TRAIN = """
import os, signal, sys, time
def save(*_):
    time.sleep(0.5)
    os.write(1, b"saved\\n")
    os._exit(3)
signal.signal(signal.SIGTERM, save)
os.write(1, b"trains\\n")
time.sleep(60)
"""
DEAF = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(1, b"%d\\n" % os.getpid())
time.sleep(60)
"""
ELASTIC = """
import os, signal, subprocess, sys
workers = [subprocess.Popen([sys.executable, "-S", "train.py"]) for _ in range(3)]
def forward(number, _):
    for worker in workers:
        worker.send_signal(number)
    sys.exit(1)
signal.signal(signal.SIGTERM, forward)
for worker in workers:
    worker.wait()
"""


async def test_what_a_shell_runs_saves_its_work_after_the_shell_is_gone(bench):
    (bench.home / "train.py").write_text(TRAIN)
    spec = bench.spec("bash", "-c", "python3 -S train.py & wait")
    await bench.engine.start(spec)
    await bench.logged(spec, 1)
    await bench.engine.stop(spec.key, cause="stop", grace_s=20)
    end = await bench.end_of(spec.key)
    assert bench.log(spec) == "trains\nsaved\n"
    assert (end.signal, end.cause, end.tree_gone) == (signal.SIGTERM, "stop", True)


async def test_all_workers_of_a_parent_that_leaves_first_save_their_work(bench):
    (bench.home / "train.py").write_text(TRAIN)
    spec = bench.python(ELASTIC)
    await bench.engine.start(spec)
    await bench.logged(spec, 3)
    await bench.engine.stop(spec.key, cause="stop", grace_s=20)
    end = await bench.end_of(spec.key)
    assert bench.log(spec).splitlines() == ["trains"] * 3 + ["saved"] * 3
    assert (end.exit_code, end.cause, end.tree_gone) == (1, "stop", True)


async def test_a_worker_that_does_not_listen_is_killed_at_the_end_of_the_grace(bench):
    (bench.home / "deaf.py").write_text(DEAF)
    spec = bench.spec("bash", "-c", "python3 -S deaf.py & wait")
    await bench.engine.start(spec)
    (pid,) = await bench.logged(spec, 1)
    await bench.engine.stop(spec.key, cause="stop", grace_s=1)
    end = await bench.end_of(spec.key)
    assert (end.signal, end.cause, end.tree_gone) == (signal.SIGTERM, "stop", True)
    assert not bench.exists(int(pid))


async def test_a_program_that_ends_by_itself_leaves_nothing_behind_that_lingers(bench):
    (bench.home / "deaf.py").write_text(DEAF)
    spec = bench.spec("bash", "-c", "python3 -S deaf.py & read -t 0.3 < /dev/zero; exit 0")
    end = await bench.run(spec)
    assert (end.exit_code, end.cause, end.tree_gone) == (0, "exit", True)
