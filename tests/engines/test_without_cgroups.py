"""Where no control group can be written: descendants and the mark in their environment are gone by."""

from __future__ import annotations

import signal

import pytest

pytestmark = pytest.mark.asyncio

FAMILY = (
    "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork():\n        os._exit(0)\n"
    "os.write(1, b'%d\\n' % os.getpid())\ntime.sleep(60)"
)


async def test_it_is_said_what_a_job_depends_on(bare):
    assert not bare.engine.survival.whole_tree
    assert bare.engine.survival.sentence.startswith("No control group can be written here")
    started = await bare.engine.start(bare.spec("true"))
    assert (started.cgroup, started.whole_tree) == (None, False)


async def test_cancel_ends_descendants_that_left_the_session(bare):
    spec = bare.python("import signal; signal.signal(15, signal.SIG_IGN)\n" + FAMILY)
    await bare.engine.start(spec)
    pids = [int(line) for line in await bare.logged(spec, 2)]
    await bare.engine.stop(spec.key, cause="cancel", grace_s=0)
    end = await bare.end_of(spec.key)
    assert (end.signal, end.cause, end.tree_gone) == (signal.SIGKILL, "cancel", True)
    assert not any(map(bare.exists, pids))


async def test_what_a_job_leaves_behind_is_ended_with_it(bare):
    spec = bare.spec("sh", "-c", "setsid sh -c 'echo $$; exec sleep 60' & sleep 0.2")
    end = await bare.run(spec)
    assert (end.exit_code, end.tree_gone) == (0, True)
    (pid,) = [int(line) for line in bare.log(spec).split()]
    assert not bare.exists(pid)


async def test_a_killed_runner_takes_the_job_with_it(bare):
    spec = bare.python(FAMILY)
    started = await bare.engine.start(spec)
    pids = [int(line) for line in await bare.logged(spec, 2)]
    bare.kill(started.pid)
    end = await bare.end_of(spec.key)
    assert (end.cause, end.tree_gone) == ("lost", True)
    assert not any(map(bare.exists, pids))
