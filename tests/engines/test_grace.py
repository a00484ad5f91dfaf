"""Who is asked to stop has the whole grace, however it began and though what is above it is gone at once."""

from __future__ import annotations

import signal

import pytest

from jupyter_gpupool.engines.local import proctree
from jupyter_gpupool.engines.local.proctree import Tree, look_at

pytestmark = pytest.mark.asyncio

TRAIN = """
import os, signal, time
asked = []
def ask(*_):
    asked.append(1)
signal.signal(signal.SIGTERM, ask)
os.write(1, b"trains\\n")
while not asked:
    time.sleep(0.02)
time.sleep(0.5)
os.write(1, b"saved, asked %d\\n" % len(asked))
os._exit(3)
"""
LAUNCHES_TWO = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
workers = [subprocess.Popen([sys.executable, "-S", "train.py"]) for _ in range(2)]
sys.exit(max(worker.wait() for worker in workers))
"""
DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("python3", ["python3", "-S", "train.py"])
    os._exit(0)
os.wait()
time.sleep(60)
"""
SHAPES = {
    "a wrapper that has more to do": (["bash", "-c", "python3 -S train.py; true"], 1),
    "a wrapper around a wrapper": (["sh", "-c", "bash -c 'python3 -S train.py; true'; true"], 1),
    "a pipe": (["bash", "-c", "python3 -S train.py | (trap '' TERM; cat)"], 1),
    "a launcher that ignores it": (["python3", "-S", "-c", LAUNCHES_TWO], 2),
    "nohup": (["bash", "-c", "nohup python3 -S train.py & sleep 60"], 1),
    "a session of its own": (["bash", "-c", "setsid python3 -S train.py & wait"], 1),
    "a daemon": (["python3", "-S", "-c", DAEMON], 1),
}
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


@pytest.mark.parametrize("shape", SHAPES)
async def test_every_process_hears_it_once_and_saves_its_work(either, shape):
    bench, (argv, workers) = either, SHAPES[shape]
    (bench.home / "train.py").write_text(TRAIN)
    spec = bench.spec(*argv)
    await bench.engine.start(spec)
    await bench.logged(spec, workers)
    await bench.engine.stop(spec.key, cause="stop", grace_s=20)
    end = await bench.end_of(spec.key)
    said = [line for line in bench.log(spec).splitlines() if line != "Terminated"]  # a shell's own word
    assert said == ["trains"] * workers + ["saved, asked 1"] * workers
    assert (end.cause, end.tree_gone) == ("stop", True)
    assert end.exit_code != 0  # it is to go on later


async def test_who_would_go_on_with_the_next_command_hears_it_first(bench, monkeypatch):
    spec = bench.spec("sh", "-c", "sh -c 'echo up; sleep 60; true'; true")
    await bench.engine.start(spec)
    await bench.logged(spec, 1)
    pids = bench.job_pids(spec)
    asked = []
    monkeypatch.setattr(proctree, "send", lambda pids, number: asked.append((number, list(pids))))
    Tree(None, bench.runner_pid(spec), "").ask()
    (number, order), (again, _) = asked
    assert (number, again, set(order)) == (signal.SIGTERM, signal.SIGCONT, pids)
    above = [order.index(parent) for pid in order if (parent := look_at(pid).parent) in order]
    assert above == [0, 1]


async def test_all_workers_of_a_parent_that_leaves_first_save_their_work(bench):
    (bench.home / "train.py").write_text(TRAIN)
    spec = bench.python(ELASTIC)
    await bench.engine.start(spec)
    await bench.logged(spec, 3)
    await bench.engine.stop(spec.key, cause="stop", grace_s=20)
    end = await bench.end_of(spec.key)
    assert [line.split(",")[0] for line in bench.log(spec).splitlines()] == ["trains"] * 3 + ["saved"] * 3
    assert (end.exit_code, end.cause, end.tree_gone) == (1, "stop", True)


async def test_a_worker_that_does_not_listen_is_killed_at_the_end_of_the_grace(either):
    bench = either
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


async def test_a_limit_that_ends_within_the_grace_is_the_end(either):
    bench = either
    (bench.home / "deaf.py").write_text(DEAF)
    spec = bench.spec("python3", "-S", "deaf.py", limit_s=2, grace_s=0)
    await bench.engine.start(spec)
    await bench.logged(spec, 1)
    await bench.engine.stop(spec.key, cause="stop", grace_s=60)
    end = await bench.end_of(spec.key)
    assert (end.signal, end.cause) == (signal.SIGKILL, "stop")


async def test_who_is_asked_by_its_limit_is_not_asked_to_go_on_later(either):
    bench = either
    (bench.home / "deaf.py").write_text(DEAF)
    spec = bench.spec("python3", "-S", "deaf.py", limit_s=3, grace_s=1)
    await bench.engine.start(spec)
    await bench.logged(spec, 1)
    await bench.until(lambda: (bench.attempt(spec) / "stop").exists())
    await bench.engine.stop(spec.key, cause="stop", grace_s=60)
    end = await bench.end_of(spec.key)
    assert (end.signal, end.cause) == (signal.SIGKILL, "limit")
