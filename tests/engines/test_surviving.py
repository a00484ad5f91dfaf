"""Whoever is killed, whenever: the job goes on, or its end is told as it was; nothing runs twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpupool.engines.base import Ended, EngineError, Started
from jupyter_gpupool.engines.local import launcher as launcher_module
from jupyter_gpupool.engines.local import runner as runner_module
from jupyter_gpupool.engines.local.cgroups import Subtree
from jupyter_gpupool.engines.local.engine import LocalEngine
from jupyter_gpupool.engines.local.records import Records

pytestmark = pytest.mark.asyncio

COUNTING = (
    "import sys, time\nfor n in range(%d):\n    print(n, flush=True)\n    time.sleep(0.02)\nsys.exit(7)"
)


async def test_the_service_goes_and_comes_back(bench):
    spec = bench.python(COUNTING % 30)
    started = await bench.engine.start(spec)
    await bench.engine.close()
    other = LocalEngine(bench.home)
    await other.open(bench.hear)
    assert await other.list() == [started]
    assert (await bench.end_of(spec.key)).exit_code == 7
    assert bench.log(spec).split() == [str(n) for n in range(30)]
    await other.close()


async def test_an_end_without_a_service_is_kept_until_forgotten(bench):
    spec = bench.spec("sh", "-c", "sleep 0.2; exit 4")
    started = await bench.engine.start(spec)
    await bench.engine.close()
    await bench.gone(started.pid)
    for _ in range(2):
        other = LocalEngine(bench.home)
        await other.open(bench.hear)
        (end,) = await other.list()
        assert isinstance(end, Ended)
        assert (end.exit_code, end.cause) == (4, "exit")
        await other.close()


async def test_the_launcher_is_killed_and_the_next_one_adopts(bench):
    spec = bench.python(COUNTING % 60)
    started = await bench.engine.start(spec)
    await bench.logged(spec, 3)
    first = bench.launcher_pid()
    bench.kill(first)
    assert await bench.engine.list() == [started]
    assert bench.launcher_pid() != first
    end = await bench.end_of(spec.key)
    assert (end.exit_code, end.signal, end.cause, end.tree_gone) == (7, None, "exit", True)
    assert bench.log(spec).split() == [str(n) for n in range(60)]


async def test_a_job_that_ended_without_a_launcher(bench):
    spec = bench.spec("sh", "-c", "sleep 0.3; exit 6")
    started = await bench.engine.start(spec)
    await bench.engine.close()
    bench.kill(bench.launcher_pid())
    await bench.gone(started.pid)
    await bench.open()
    (end,) = await bench.engine.list()
    assert (end.exit_code, end.cause, end.tree_gone) == (6, "exit", True)


async def test_ends_are_told_again_after_the_launcher_was_killed(bench):
    spec = bench.spec("sh", "-c", "exit 2")
    end = await bench.run(spec)
    bench.ends.clear()
    bench.kill(bench.launcher_pid())
    assert await bench.end_of(spec.key) == end


async def test_the_limit_holds_after_the_launcher_was_killed(bench):
    spec = bench.spec("sleep", "60", limit_s=2, grace_s=1)
    await bench.engine.start(spec)
    bench.kill(bench.launcher_pid())
    end = await bench.end_of(spec.key)
    assert (end.signal, end.cause) == (signal.SIGTERM, "limit")


async def test_a_request_to_end_holds_after_the_launcher_was_killed(bench):
    spec = bench.python(
        "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint(1, flush=True)\ntime.sleep(60)"
    )
    await bench.engine.start(spec)
    await bench.logged(spec, 1)
    await bench.engine.stop(spec.key, cause="stop", grace_s=1)
    bench.kill(bench.launcher_pid())
    end = await bench.end_of(spec.key)
    assert (end.signal, end.cause) == (signal.SIGKILL, "stop")


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_before(owner: type, name: str) -> None:
    setattr(owner, name, die)


def die_after(owner: type, name: str) -> None:
    original = getattr(owner, name)

    def then_die(*args: object, **kwargs: object) -> None:
        original(*args, **kwargs)
        die()

    setattr(owner, name, then_die)


@pytest.mark.parametrize(
    "kill",
    [
        pytest.param(lambda: die_before(Records, "prepare"), id="before the specification is written"),
        pytest.param(lambda: die_after(Records, "prepare"), id="after the specification is written"),
        pytest.param(lambda: die_after(runner_module.Runner, "order"), id="after the order is given"),
        pytest.param(lambda: die_before(Records, "write_runner"), id="before the runner is recorded"),
        pytest.param(lambda: die_after(Records, "write_runner"), id="after the runner is recorded"),
        pytest.param(lambda: die_after(runner_module.Runner, "go"), id="after the runner was let go"),
        pytest.param(lambda: die_before(launcher_module.Launcher, "take_ends"), id="before the end is told"),
    ],
)
async def test_a_launcher_killed_while_it_starts_a_job(unopened, launch, kill):
    """The request is asked again of the next launcher; the job runs once, whatever was done before."""
    launch(alter=kill)
    await unopened.open()
    spec = unopened.spec("sh", "-c", f"echo ran >> {unopened.home}/runs; exit 3")
    started = await unopened.engine.start(spec)
    assert isinstance(started, Started)
    end = await unopened.end_of(spec.key)
    assert (end.exit_code, end.cause, end.tree_gone) == (3, "exit", True)
    assert (unopened.home / "runs").read_text() == "ran\n"


async def test_a_job_told_to_end_before_it_was_let_go_does_not_begin(unopened, launch):
    launch(alter=lambda: die_after(Records, "write_runner"))
    spec = unopened.spec("sh", "-c", f"echo ran >> {unopened.home}/runs")
    await unopened.engine.open(lambda end: None)
    asking = asyncio.create_task(unopened.engine._link.ask("start", {"spec": _fields(spec)}))
    with pytest.raises(ConnectionError):
        await asking
    await unopened.engine.close()
    runner = unopened.runner_pid(spec)
    await unopened.gone(runner)
    Records.of(spec).write_stop(launcher_module.StopRecord("cancel", 0.0))
    await unopened.open()
    (end,) = await unopened.engine.list()
    assert (end.cause, end.exit_code, end.tree_gone) == ("cancel", None, True)
    assert not (unopened.home / "runs").exists()


async def test_the_runner_is_killed(bench):
    spec = bench.python(
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    os.fork()\n"
        "os.write(1, b'%d\\n' % os.getpid())\ntime.sleep(60)"
    )
    started = await bench.engine.start(spec)
    pids = [int(line) for line in await bench.logged(spec, 3)]
    bench.kill(started.pid)
    end = await bench.end_of(spec.key)
    assert (end.exit_code, end.signal, end.cause, end.tree_gone) == (None, None, "lost", True)
    assert end.message == "The job's runner was killed, and the job with it."
    assert not any(map(bench.exists, pids))


async def test_runner_and_launcher_are_killed(bench):
    spec = bench.python("import os, time\nos.fork()\nos.write(1, b'%d\\n' % os.getpid())\ntime.sleep(60)")
    started = await bench.engine.start(spec)
    pids = [int(line) for line in await bench.logged(spec, 2)]
    await bench.engine.close()
    bench.kill(bench.launcher_pid())
    bench.kill(started.pid)
    await bench.gone(started.pid)
    await bench.open()
    end = await bench.settled(spec.key)
    assert (end.cause, end.tree_gone) == ("lost", True)
    assert not any(map(bench.exists, pids))


async def test_the_program_is_killed(bench):
    spec = bench.python("import os, time\nos.write(1, b'%d\\n' % os.getpid())\ntime.sleep(60)")
    await bench.engine.start(spec)
    (pid,) = [int(line) for line in await bench.logged(spec, 1)]
    bench.kill(pid)
    end = await bench.end_of(spec.key)
    assert (end.exit_code, end.signal, end.cause, end.oom) == (None, signal.SIGKILL, "exit", False)


@pytest.mark.parametrize("pause", [0.0, 0.1])
async def test_the_spare_runner_is_killed(bench, pause):
    """What was made ahead of need may be dying, or gone, when it is needed."""
    launcher = bench.launcher_pid()
    (spare,) = await bench.until(lambda: bench.children(launcher))
    bench.kill(spare)
    await asyncio.sleep(pause)
    assert (await bench.run(bench.spec("sh", "-c", "exit 5"))).exit_code == 5


async def test_a_runner_that_is_killed_before_it_begins_is_replaced_once(unopened, launch):
    def die_at_once(exit_record: int) -> None:
        die()

    launch(alter=lambda: setattr(runner_module, "mark_begun", die_at_once))
    await unopened.open()
    end = await unopened.run(unopened.spec("true"))
    assert (end.cause, end.exit_code, end.tree_gone) == ("lost", None, True)


async def test_a_reboot(bench):
    lost = bench.spec("sleep", "60")
    done = bench.spec("sh", "-c", "exit 3")
    await bench.engine.start(lost)
    end = await bench.run(done)
    await bench.engine.close()
    bench.kill(bench.launcher_pid())
    for pid in (bench.runner_pid(lost), *bench.job_pids(lost)):
        bench.kill(pid)
    after = LocalEngine(bench.home, boot="another-boot")
    await after.open(bench.hear)
    reports = {report.key: report for report in await after.list()}
    assert reports[done.key] == end
    assert (reports[lost.key].cause, reports[lost.key].tree_gone) == ("reboot", True)
    assert "restarted" in reports[lost.key].message
    await after.close()


async def test_a_process_id_that_belongs_to_somebody_else_is_not_adopted(bench):
    spec = bench.spec("sh", "-c", "echo here; exec sleep 60")
    started = await bench.engine.start(spec)
    await bench.logged(spec, 1)
    await bench.engine.close()
    bench.kill(bench.launcher_pid())
    bench.kill(started.pid)
    path = bench.attempt(spec) / "runner.json"
    path.write_text(path.read_text().replace(f'"pid": {started.pid}', f'"pid": {os.getpid()}'))
    await bench.open()
    assert (await bench.settled(spec.key)).cause == "lost"


async def test_the_group_of_the_lab_is_killed(unopened, whole_tree):
    """A service in the lab's control group starts launcher and job; ending that group ends neither."""
    lab = Subtree.at(unopened.home).hierarchy.highest() / f"lab-{os.getpid()}"
    lab.mkdir()
    spec = unopened.python(COUNTING % 60)
    service = subprocess.Popen(
        [sys.executable, "-c", SERVICE.format(lab=lab, home=unopened.home, spec=_fields(spec))],
        stdout=subprocess.PIPE,
    )
    try:
        assert await asyncio.to_thread(service.stdout.readline) == b"started\n"
        await unopened.logged(spec, 2)
        if (lab / "cgroup.kill").exists():
            (lab / "cgroup.kill").write_text("1")
        else:
            for pid in (lab / "cgroup.procs").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
        assert await asyncio.to_thread(service.wait, 10) == -signal.SIGKILL
    finally:
        service.kill()
        service.wait()
        service.stdout.close()
        await unopened.until(lambda: _removed(lab))
    await unopened.open()
    assert unopened.engine.survival.whole_tree
    assert "outlive the lab" in unopened.engine.survival.sentence
    assert (await unopened.settled(spec.key)).exit_code == 7
    assert unopened.log(spec).split() == [str(n) for n in range(60)]


SERVICE = """
import asyncio, os, pathlib
(pathlib.Path('{lab}') / 'cgroup.procs').write_text(str(os.getpid()))
from jupyter_gpupool.engines.base import WorkSpec
from jupyter_gpupool.engines.local.engine import LocalEngine
async def main():
    engine = LocalEngine(pathlib.Path('{home}'))
    await engine.open(lambda end: None)
    await engine.start(WorkSpec(**{spec}))
    print('started', flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


async def test_the_service_can_leave_the_group_of_the_lab(unopened, whole_tree):
    code = (
        "import sys, pathlib; from jupyter_gpupool.engines.local import cgroups;"
        "home = pathlib.Path(sys.argv[1]); print(cgroups.leave_own_cgroup(home));"
        "print(open('/proc/self/cgroup').read()); cgroups.return_own_cgroup(home)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(unopened.home)], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("True\n")
    held = Subtree.at(unopened.home).held
    assert f"/{held.name}/service" in done.stdout
    assert not (held / "service").exists()


async def test_a_launcher_of_another_version_hands_its_jobs_over(unopened, launch, monkeypatch):
    launch(alter=lambda: setattr(launcher_module, "__version__", "0.0.0"))
    first = LocalEngine(unopened.home)
    monkeypatch.setattr("jupyter_gpupool.engines.local.engine.__version__", "0.0.0")
    await first.open(lambda end: None)
    spec = unopened.python(COUNTING % 150)
    started = await first.start(spec)
    await first.close()
    monkeypatch.undo()
    await unopened.open()
    assert await unopened.engine.list() == [started]
    assert (await unopened.end_of(spec.key)).exit_code == 7


async def test_two_engines_at_once_share_one_launcher(bench):
    other = LocalEngine(bench.home)
    await other.open(lambda end: None)
    spec = bench.spec("sleep", "60")
    started = await other.start(spec)
    assert await bench.engine.list() == [started]
    await other.close()


async def test_shutdown_leaves_nothing(bench):
    spec = bench.python("import os, signal, time\nsignal.signal(15, signal.SIG_IGN)\nos.fork()\n"
                        "os.write(1, b'%d\\n' % os.getpid())\ntime.sleep(60)")  # fmt: skip
    await bench.engine.start(spec)
    pids = [int(line) for line in await bench.logged(spec, 2)]
    launcher = bench.launcher_pid()
    await bench.engine.shutdown(True, grace_s=1)
    assert not any(map(bench.exists, [*pids, launcher]))
    assert not (bench.home / "run" / "launcher.sock").exists()


async def test_shutdown_without_killing_leaves_the_job_and_its_limit(bench):
    spec = bench.spec("sleep", "60", limit_s=2, grace_s=1)
    started = await bench.engine.start(spec)
    launcher = bench.launcher_pid()
    await bench.engine.shutdown(False)
    assert bench.exists(started.pid)
    await bench.gone(started.pid, launcher)  # the limit still ended the job, and then the launcher left
    await bench.open()
    (end,) = await bench.engine.list()
    assert end.cause == "limit"


async def test_an_engine_that_cannot_start_a_launcher_says_why(tmp_path):
    (tmp_path / "run").write_text("not a folder")
    engine = LocalEngine(tmp_path)
    with pytest.raises(EngineError, match="cannot be used"):
        await engine.open(lambda end: None)


def _removed(directory: Path) -> bool:
    try:
        directory.rmdir()
    except OSError:
        return not directory.exists()
    return True


def _fields(spec: object) -> dict[str, object]:
    return {name: getattr(spec, name) for name in spec.__slots__}


async def test_what_is_left_of_an_attempt_is_seen_without_its_record(bench):
    spec = bench.spec("sh", "-c", "echo up; sleep 100")
    await bench.engine.start(spec)
    await bench.logged(spec, 1)
    (bench.home / "run" / "attempts" / f"{spec.job}.{spec.attempt}").unlink()
    bench.kill(bench.launcher_pid())
    assert await bench.engine.list() == []
    pids = bench.job_pids(spec)
    assert await bench.engine.left(spec.key) == sorted(pids)
    assert await bench.engine.left(f"{spec.key}0") == []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            bench.kill(pid)
    await bench.until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    while await bench.engine.left(spec.key):
        await asyncio.sleep(0.02)
