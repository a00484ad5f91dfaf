"""A job ends when it should, and all of it: asked first, killed in the end, whoever left the session."""

from __future__ import annotations

import os
import selectors
import signal

import pytest

from jupyter_gpupool.engines.local.attempt import Attempt
from jupyter_gpupool.engines.local.cgroups import Subtree
from jupyter_gpupool.engines.local.launcher import Launcher
from jupyter_gpupool.engines.local.records import StopRecord

pytestmark = pytest.mark.asyncio

FAMILY = """
import os, subprocess, sys, time
def say(): os.write(1, b"%d\\n" % os.getpid())
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        say()
        time.sleep(60)
    os._exit(0)
say()
time.sleep({seconds})
"""

STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: os.write(1, b"asked %.3f\\n" % time.monotonic()))
os.write(1, b"started %.3f\\n" % time.monotonic())
while True:
    time.sleep(0.05)
"""

OBEDIENT = """
import os, signal, sys, time
def leave(*_):
    os.write(1, b"saved\\n")
    sys.exit({code})
signal.signal(signal.SIGTERM, leave)
os.write(1, b"started\\n")
time.sleep(60)
"""


async def test_what_a_job_leaves_behind_is_ended_with_it(bench):
    spec = bench.python(FAMILY.format(seconds=0.1))
    end = await bench.run(spec)
    pids = [int(line) for line in bench.log(spec).split()]
    assert (end.exit_code, end.cause, end.tree_gone) == (0, "exit", True)
    assert len(pids) == 2
    assert not any(map(bench.exists, pids))


async def test_cancel_reaches_every_process(bench):
    spec = bench.python(FAMILY.format(seconds=60))
    await bench.engine.start(spec)
    pids = [int(line) for line in await bench.logged(spec, 2)]
    await bench.engine.stop(spec.key, cause="cancel", grace_s=5)
    end = await bench.end_of(spec.key)
    assert (end.exit_code, end.signal, end.cause, end.tree_gone) == (None, signal.SIGTERM, "cancel", True)
    assert not any(map(bench.exists, pids))


async def test_a_job_may_finish_in_its_grace(bench):
    spec = bench.python(OBEDIENT.format(code=0))
    await bench.engine.start(spec)
    await bench.logged(spec, 1)
    await bench.engine.stop(spec.key, cause="stop", grace_s=20)
    end = await bench.end_of(spec.key)
    assert (end.exit_code, end.signal, end.cause, end.message) == (0, None, "stop", "")
    assert bench.log(spec) == "started\nsaved\n"


async def test_the_marker_for_should_stop_is_there_when_the_signal_comes(bench):
    code = (
        "import os, signal, sys, time\n"
        "stop = os.environ['GPUPOOL_ATTEMPT_DIR'] + '/stop'\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(40 + os.path.exists(stop)))\n"
        "os.write(1, b'%d\\n' % os.path.exists(stop))\n"
        "time.sleep(60)"
    )
    spec = bench.python(code)
    await bench.engine.start(spec)
    assert await bench.logged(spec, 1) == ["0"]
    await bench.engine.stop(spec.key, cause="stop", grace_s=20)
    assert (await bench.end_of(spec.key)).exit_code == 41


async def test_after_the_grace_comes_the_kill(bench):
    spec = bench.python(STUBBORN)
    await bench.engine.start(spec)
    await bench.logged(spec, 1)
    await bench.engine.stop(spec.key, cause="cancel", grace_s=1)
    end = await bench.end_of(spec.key)
    assert (end.exit_code, end.signal, end.cause) == (None, signal.SIGKILL, "cancel")
    assert "asked" in bench.log(spec)


async def test_a_second_request_shortens_the_grace_and_names_the_cause(bench):
    spec = bench.python(STUBBORN)
    await bench.engine.start(spec)
    await bench.logged(spec, 1)
    await bench.engine.stop(spec.key, cause="stop", grace_s=60)
    await bench.logged(spec, 2)
    await bench.engine.stop(spec.key, cause="cancel", grace_s=0)
    end = await bench.end_of(spec.key)
    assert (end.signal, end.cause) == (signal.SIGKILL, "cancel")


async def test_the_time_limit_asks_and_then_kills(bench):
    spec = bench.python(STUBBORN, limit_s=2, grace_s=1)
    end = await bench.run(spec)
    assert (end.exit_code, end.signal, end.cause, end.tree_gone) == (None, signal.SIGKILL, "limit", True)
    assert end.message == "The time limit of 2 s was reached."
    asked = float(bench.log(spec).splitlines()[1].split()[1])
    assert asked >= bench.start_of(spec) + 1  # at limit - grace, not before


async def test_the_time_limit_reaches_every_process(bench):
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    spec = bench.python(deaf + FAMILY.format(seconds=60), limit_s=2, grace_s=1)
    end = await bench.run(spec)
    pids = [int(line) for line in bench.log(spec).split()]
    assert end.cause == "limit"
    assert len(pids) == 2
    assert not any(map(bench.exists, pids))


async def test_work_that_finishes_in_the_grace_of_its_limit_has_exit_code_0(bench):
    end = await bench.run(bench.python(OBEDIENT.format(code=0), limit_s=2, grace_s=1))
    assert (end.exit_code, end.cause, end.message) == (0, "limit", "")


async def test_a_stopped_process_is_woken_to_be_asked(bench):
    spec = bench.python(OBEDIENT.format(code=5))
    await bench.engine.start(spec)
    await bench.logged(spec, 1)
    (pid,) = bench.job_pids(spec)
    bench.kill(pid, signal.SIGSTOP)
    await bench.engine.stop(spec.key, cause="cancel", grace_s=20)
    assert (await bench.end_of(spec.key)).exit_code == 5


async def test_a_job_that_stops_its_runner_is_ended_all_the_same(bench):
    spec = bench.python(
        "import os, signal, time\nos.kill(os.getppid(), signal.SIGSTOP)\n"
        "os.write(1, b'done\\n')\ntime.sleep(60)"
    )
    await bench.engine.start(spec)
    await bench.logged(spec, 1)
    await bench.engine.stop(spec.key, cause="cancel", grace_s=0)
    end = await bench.end_of(spec.key)
    assert (end.cause, end.tree_gone) == ("cancel", True)
    assert end.signal in (signal.SIGTERM, signal.SIGKILL)


async def test_a_job_told_to_end_while_it_is_unpacked(bench):
    spec = bench.spec(
        "sleep", "60", **bench.snapshot({f"{number}.txt": "x" * 9000 for number in range(3000)})
    )
    await bench.engine.start(spec)
    await bench.engine.stop(spec.key, cause="cancel", grace_s=0)
    end = await bench.end_of(spec.key)
    assert (end.exit_code, end.cause) == (None, "cancel")
    assert end.signal in (signal.SIGTERM, signal.SIGKILL)


@pytest.mark.usefixtures("whole_tree")
async def test_memory_over_the_limit_is_told_as_such(bench):
    eat = "import os; os.write(1, b'eating'); x = bytearray(300 << 20); os.write(1, b'full')"
    spec = bench.python(eat, memory_mib=100)
    end = await bench.run(spec)
    if end.exit_code == 0:
        pytest.skip("no memory controller can be used here")
    assert bench.log(spec) == "eating"
    assert (end.signal, end.cause, end.oom) == (signal.SIGKILL, "exit", True)
    assert end.peak_mib is not None
    assert 90 <= end.peak_mib <= 101


async def test_peak_memory_is_reported(bench):
    end = await bench.run(bench.python("x = bytearray(150 << 20)"))
    assert end.peak_mib is not None
    assert 150 <= end.peak_mib < 400
    assert not end.oom


async def test_a_runner_that_ends_while_it_is_being_killed_is_no_mishap(bench, tmp_path):
    """Reaped with the others, its end not seen yet: there is nobody left to signal."""
    runner = os.fork()
    if runner == 0:
        os._exit(0)
    pidfd = os.pidfd_open(runner)
    os.waitpid(runner, 0)
    launcher = Launcher(tmp_path, "boot", Subtree(), selectors.DefaultSelector())
    attempt = Attempt(bench.spec("true"), pidfd=pidfd, stop=StopRecord("cancel", 0.0))
    launcher._attempts[attempt.spec.key] = attempt
    launcher.tick(now=1.0)
    assert attempt.kill_again > 1.0
    os.close(pidfd)
