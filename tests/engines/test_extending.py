"""A job that gets more time has it, also when the launcher dies in between."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.asyncio

LONG = "import time; print('up', flush=True); time.sleep(2.5)"


async def test_it_runs_beyond_its_first_limit(bench):
    spec = bench.python(LONG, limit_s=2, grace_s=0)
    await bench.engine.start(spec)
    assert await bench.engine.extend(spec.key, 60)
    end = await bench.end_of(spec.key)
    assert (end.cause, end.exit_code) == ("exit", 0)


async def test_the_next_launcher_knows(bench):
    spec = bench.python(LONG, limit_s=2, grace_s=0)
    await bench.engine.start(spec)
    assert await bench.engine.extend(spec.key, 60)
    bench.kill(bench.launcher_pid())
    end = await bench.settled(spec.key)
    assert (end.cause, end.exit_code) == ("exit", 0)


async def test_one_that_was_asked_to_end_gets_no_more(bench):
    spec = bench.python("import signal, time; signal.signal(15, lambda *_: None); time.sleep(60)")
    await bench.engine.start(spec)
    await bench.engine.stop(spec.key, cause="cancel", grace_s=0)
    assert not await bench.engine.extend(spec.key, 60)
    await bench.settled(spec.key)
    assert not await bench.engine.extend(spec.key, 60)
    assert not await bench.engine.extend("99/1", 60)
