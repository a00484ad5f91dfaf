"""Work of several people, each as their own account; and what one of them may try."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_gpupool.engines.base import Ended, EngineError
from jupyter_gpupool.engines.local import identity
from jupyter_gpupool.engines.local.cgroups import Subtree
from jupyter_gpupool.engines.local.engine import LocalEngine
from jupyter_gpupool.engines.local.identity import account_of
from jupyter_gpupool.engines.local.launcher import Launcher
from jupyter_gpupool.engines.local.records import Index, Records, RunnerRecord

pytestmark = pytest.mark.asyncio

WHO = "import os\nprint(os.getresuid(), os.getresgid(), sorted(os.getgroups()), sep='\\n')\n"
TRY = """
import os
def attempt(what, do):
    try:
        do()
        print(what, "done")
    except OSError as error:
        print(what, type(error).__name__)
"""


async def test_work_runs_as_its_account_in_its_files(system):
    ada = system.accounts.ada
    code = WHO + (
        "print(os.getcwd(), *(os.environ[name] for name in ('HOME', 'USER', 'LOGNAME', 'SHELL')))\n"
        "open('mine', 'w').close()\n"
        "print(open('/proc/self/status').read().partition('CapEff:')[2].split()[0])\n"
        "open('/dev/stdout', 'a').close()\n"
    )
    spec = system.python(code, environment={"PATH": "/usr/bin:/bin", "HOME": "/elsewhere"})
    end = await system.run(spec)
    assert (end.exit_code, end.cause, end.tree_gone) == (0, "exit", True)
    assert system.log(spec).splitlines() == [
        *system.ids(),
        f"{ada.home} /elsewhere {ada.name} {ada.name} {ada.shell}",
        "0000000000000000",
    ]
    assert os.stat(f"{ada.home}/mine").st_uid == ada.uid


async def test_each_part_of_a_job_is_whose_it_should_be(system):
    ada = system.accounts.ada
    spec = system.spec("sleep", "60")
    await system.engine.start(spec)
    await system.engine.stop(spec.key, cause="stop", grace_s=30)
    job, attempt = system.attempt(spec).parent, system.attempt(spec)
    root, theirs = (0, ada.gid, 0o710), (ada.uid, ada.gid, 0o700)
    expected = {
        job: root,
        attempt: root,
        job / "out": theirs,
        job / "checkpoint": theirs,
        attempt / "code": theirs,
        attempt / "progress.jsonl": (ada.uid, ada.gid, 0o600),
        attempt / "log": (ada.uid, ada.gid, 0o600),
        attempt / "stop": (0, ada.gid, 0o640),
        attempt / "spec.json": (0, 0, 0o600),
        attempt / "runner.json": (0, 0, 0o600),
        attempt / "exit.json": (0, 0, 0o600),
    }
    found = {path: path.stat() for path in expected}
    assert {path: (s.st_uid, s.st_gid, s.st_mode & 0o777) for path, s in found.items()} == expected


async def test_the_snapshot_is_unpacked_as_the_account(system):
    spec = system.spec("cat", "code/a.py", workdir=str(system.home), **snapshot_of(system))
    spec = replace(spec, workdir=str(system.attempt(spec)))
    end = await system.run(spec)
    assert (end.exit_code, system.log(spec)) == (0, "print('hello')")
    assert (system.attempt(spec) / "code" / "a.py").stat().st_uid == system.accounts.ada.uid


async def test_the_job_hears_that_it_is_asked_to_end(system):
    code = (
        "import os, signal, sys, time\n"
        "def end(*_):\n"
        "    time.sleep(0.05)\n"
        "    stop = open(os.environ['GPUPOOL_ATTEMPT_DIR'] + '/stop').read()\n"
        "    sys.exit(0 if 'stop' in stop else 1)\n"
        "signal.signal(signal.SIGTERM, end)\nprint('ready', flush=True)\ntime.sleep(60)\n"
    )
    spec = system.python(code)
    await system.engine.start(spec)
    await system.logged(spec, 1)
    await system.engine.stop(spec.key, cause="stop", grace_s=20)
    end = await system.end_of(spec.key)
    assert (end.exit_code, end.cause) == (0, "stop")


# What a job may try


async def test_a_job_cannot_forge_its_end_or_move_what_is_the_launchers(system):
    code = TRY + (
        "os.chdir(os.environ['GPUPOOL_ATTEMPT_DIR'])\n"
        "for name in ('exit.json', 'spec.json', 'runner.json'):\n"
        "    attempt('read ' + name, lambda: open(name))\n"
        "    attempt('write ' + name, lambda: open(name, 'w'))\n"
        "    attempt('remove ' + name, lambda: os.unlink(name))\n"
        "for name in ('log', 'code', '../out', 'progress.jsonl'):\n"
        "    attempt('move ' + name, lambda: os.rename(name, name + '.mine'))\n"
        "attempt('add stop', lambda: open('stop', 'w'))\n"
        "attempt('link', lambda: os.symlink('/etc/shadow', 'log2'))\n"
        "attempt('look', lambda: os.listdir('.'))\n"
        "attempt('other jobs', lambda: os.listdir('../..'))\n"
        "raise SystemExit(3)\n"
    )
    spec = system.python(code)
    end = await system.run(spec)
    lines = system.log(spec).splitlines()
    assert len(lines) == 17
    assert {line.rpartition(" ")[2] for line in lines} == {"PermissionError"}
    assert (end.exit_code, end.cause) == (3, "exit")


async def test_a_job_cannot_reach_into_its_runner(system):
    code = TRY + (
        "runner = f'/proc/{os.getppid()}'\n"
        "for name in ('fd', 'fdinfo', 'cwd', 'root'):\n"
        "    attempt(name, lambda: os.listdir(f'{runner}/{name}'))\n"
        "for name in ('mem', 'environ', 'maps', 'fd/5'):\n"
        "    attempt(name, lambda: open(f'{runner}/{name}', 'rb').read(1))\n"
        "import ctypes\n"
        "print('attach', ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0))\n"
    )
    spec = system.python(code)
    await system.run(spec)
    said = dict(line.split() for line in system.log(spec).splitlines())
    assert said.pop("attach") == "-1"
    assert len(said) == 8
    assert set(said.values()) == {"PermissionError"}


async def test_a_job_that_kills_its_runner_is_lost_with_all_its_processes(system):
    code = (
        "import os, signal, time\n"
        "if os.fork() == 0:\n    os.setsid()\n    time.sleep(60)\n"
        "print(os.getpid(), flush=True)\nos.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(60)\n"
    )
    spec = system.python(code)
    end = await system.run(spec)
    assert (end.exit_code, end.cause) == (None, "lost")
    assert (await system.settled(spec.key)).tree_gone
    assert not system.exists(int(system.log(spec)))


async def test_the_end_of_a_runner_is_the_end_of_its_program(system):
    """Even when the launcher does nothing about it: becoming the account has not undone that."""
    spec = system.python("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)")
    started = await system.engine.start(spec)
    (program,) = map(int, await system.logged(spec, 1))
    system.launcher.process.send_signal(signal.SIGSTOP)
    try:
        system.kill(started.pid)
        await system.gone(program)
    finally:
        system.launcher.process.send_signal(signal.SIGCONT)


async def test_what_a_job_leaves_behind_ends_with_it(system):
    code = (
        "import os, signal, time\n"
        "if os.fork() == 0:\n    os.setsid()\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    print(os.getpid(), flush=True)\n    time.sleep(60)\ntime.sleep(0.3)\n"
    )
    spec = system.python(code)
    assert (await system.run(spec)).tree_gone
    assert not system.exists(int(system.log(spec)))


async def test_what_a_job_cannot_end_itself_ends_with_it(system, whole_tree, open_folder):
    """A program that has become root is out of the runner's reach, but not of the launcher's."""
    program = open_folder / "python"
    shutil.copy(Path("/usr/bin/python3").resolve(), program)
    program.chmod(0o4755)
    as_root = "import os, time; os.setresuid(0, 0, 0); print(os.getpid(), flush=True); time.sleep(60)"
    code = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([{str(program)!r}, '-S', '-c', {as_root!r}], stdout=subprocess.PIPE)\n"
        "print(child.stdout.readline().decode(), flush=True)\n"
        "sys.exit(5)\n"
    )
    spec = system.python(code, environment={"PATH": "/usr/bin:/bin", "PYTHONHOME": "/usr"})
    await system.engine.start(spec)
    end = await system.settled(spec.key)
    assert (end.exit_code, end.cause) == (5, "exit")
    assert not system.exists(int(system.log(spec)))


async def test_each_job_has_a_keyring_of_its_own(system):
    number = identity._KEYCTL.get(os.uname().machine, 0)
    code = f"import ctypes\nprint(ctypes.CDLL(None).syscall({number}, 0, -3, 0))"
    specs = [system.python(code) for _ in range(2)]
    for spec in specs:
        assert (await system.run(spec)).exit_code == 0
    first, second = map(system.log, specs)
    assert first != second or first == "-1\n"  # a container may have no keys


async def test_a_job_cannot_leave_its_control_group(system, whole_tree):
    code = TRY + (
        "for line in open('/proc/self/cgroup'):\n"
        "    if 'gpupool' in line:\n"
        "        number, names, path = line.strip().split(':', 2)\n"
        "        for mount in (f'/sys/fs/cgroup/{names}', '/sys/fs/cgroup/unified', '/sys/fs/cgroup'):\n"
        "            for file in (f'{mount}/cgroup.procs', f'{mount}{path}/cgroup.procs'):\n"
        "                if os.path.exists(file):\n"
        "                    attempt(file, lambda: os.write(os.open(file, os.O_WRONLY), b'0'))\n"
    )
    spec = system.python(code)
    await system.run(spec)
    lines = system.log(spec).splitlines()
    assert lines
    assert {line.split()[1] for line in lines} == {"PermissionError"}


async def test_a_colleague_reaches_nothing_of_a_job(system):
    spec = system.python("import os, time\nopen(os.environ['HOME'] + '/up', 'w')\ntime.sleep(60)")
    started = await system.engine.start(spec)
    await system.until((system.attempt(spec) / "log").exists)
    attempt = system.attempt(spec)
    for path in (attempt / "log", attempt / "spec.json", attempt.parent / "out"):
        said = system.as_account(system.accounts.bob, lambda path=path: os.stat(path))
        assert said.startswith("PermissionError")
    said = system.as_account(system.accounts.bob, lambda: os.kill(started.pid, 0))
    assert said.startswith("PermissionError")


# Whom the launcher works for


@pytest.mark.parametrize(
    ("name", "says"), [("root", "root's"), ("service", "UID_MIN"), ("nobody-here", "has no account")]
)
async def test_a_name_that_is_no_persons_is_refused(system, name, says):
    user = system.accounts.service.name if name == "service" else name
    with pytest.raises(EngineError, match=says):
        await system.engine.start(system.spec("true", user=user))
    assert await system.engine.list() == []
    assert list((system.home / "jobs").iterdir()) == []


@pytest.mark.parametrize(
    ("close", "undo", "says"),
    [
        (("--shell", "/usr/sbin/nologin"), ("--shell", "/bin/bash"), "login shell"),
        (("--expiredate", "1"), ("--expiredate", ""), "expired on 1970-01-02"),
    ],
)
async def test_an_account_that_was_closed_is_refused(system, close, undo, says):
    bob = system.accounts.bob.name
    usermod(*close, bob)
    try:
        with pytest.raises(EngineError, match=says):
            await system.engine.start(system.spec("true", user=bob))
    finally:
        usermod(*undo, bob)
    assert account_of(bob) == system.accounts.bob


async def test_the_service_cannot_have_work_run_as_root_or_elsewhere(system):
    with pytest.raises(EngineError, match="works for accounts only"):
        await system.engine.start(system.spec("true", user=None))
    with pytest.raises(EngineError, match=f"must be {system.home}/jobs/7, not /etc/jobs"):
        await system.engine.start(system.spec("true", job=7, folder="/etc/jobs"))
    assert await system.engine.list() == []


async def test_only_snapshots_of_the_service_are_opened(system, tmp_path):
    good = snapshot_of(system)
    snapshots, service = system.launcher.snapshots, system.accounts.service
    elsewhere = tmp_path / "secret.tar"
    elsewhere.write_bytes(b"secret")
    (snapshots / "roots.tar").write_bytes(b"secret")
    (snapshots / "link.tar").symlink_to(elsewhere)
    (snapshots / "way").symlink_to(tmp_path)
    os.mkfifo(snapshots / "fifo.tar")
    os.chown(snapshots / "fifo.tar", service.uid, service.gid)
    wrong = [elsewhere, *(snapshots / n for n in ("roots.tar", "link.tar", "way/secret.tar", "fifo.tar"))]
    for path in [*wrong, snapshots / ".." / "snapshots" / "roots.tar"]:
        end = await system.run(system.spec("true", **{**good, "snapshot": str(path)}))
        assert (end.cause, end.exit_code) == ("start", None)
        assert str(path.name) in end.message


async def test_only_root_and_the_service_are_heard(system):
    path = str(system.home / "run" / "launcher.sock")

    def connect() -> object:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            return connection.recv(8)

    for account in (system.accounts.ada, system.accounts.bob):
        assert system.as_account(account, connect).startswith("PermissionError")
    assert system.as_account(system.accounts.service, connect) == str(b'{"event"')
    os.chmod(path, 0o666)
    assert system.as_account(system.accounts.bob, connect) == str(b"")


async def test_a_launcher_that_is_not_roots_runs_nothing_as_others(bench, tmp_path, monkeypatch):
    launcher = Launcher(tmp_path / "other", "boot", Subtree(), selectors.DefaultSelector())
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 1000)
        with pytest.raises(EngineError, match=r"cannot run 1/1 as 'ada'.* must be started by root"):
            launcher.start(bench.spec("true", user="ada"))


# Coming and going


async def test_the_launcher_is_killed_and_the_next_one_adopts(system):
    spec = system.python("import time\nprint('up', flush=True)\ntime.sleep(0.5)\nraise SystemExit(7)")
    started = await system.engine.start(spec)
    await system.logged(spec, 1)
    system.launcher.kill()
    system.launcher.start()
    assert (await system.end_of(spec.key)).exit_code == 7
    (end,) = await system.engine.list()
    assert (end.key, end.exit_code) == (started.key, 7)


async def test_work_that_had_not_begun_begins_as_its_account(system):
    """A launcher that was killed between making a runner and letting it go leaves this."""
    spec = system.python(WHO)
    await system.engine.close()
    system.launcher.kill()
    Index(system.home).add(spec)
    records = Records.of(spec)
    records.prepare(spec, system.accounts.ada)
    os.close(records.open_exit())
    boot = LocalEngine(system.home)._boot
    records.write_runner(RunnerRecord(2**22, 1, boot, time.monotonic(), time.time(), None))
    system.launcher.start()
    await system.open()
    assert (await system.settled(spec.key)).exit_code == 0
    assert system.log(spec).splitlines() == system.ids()


async def test_the_systems_launcher_is_not_the_services_to_end(system):
    spec = system.spec("sleep", "60")
    await system.engine.start(spec)
    for op in ("retire", "quit"):
        with pytest.raises(EngineError, match="systemctl stop"):
            await system.engine._ask(op)
    await system.engine.shutdown(True, grace_s=0)
    assert system.launcher.process.poll() is None
    await system.open()
    (end,) = await system.engine.list()
    assert isinstance(end, Ended)
    assert (end.cause, end.tree_gone) == ("cancel", True)


async def test_without_a_launcher_the_engine_says_how_to_start_it(tmp_path):
    engine = LocalEngine(tmp_path / "launcher", may_start=False)
    with pytest.raises(EngineError, match="systemctl start gpupool-launcher"):
        await engine.open(lambda end: None)
    assert list(tmp_path.iterdir()) == []
    assert not engine.privileged


async def test_a_launcher_of_another_version_is_not_replaced_but_named(system, monkeypatch):
    monkeypatch.setattr("jupyter_gpupool.engines.local.engine.__version__", "99.0")
    engine = LocalEngine(system.home, may_start=False)
    with pytest.raises(EngineError, match=r"99\.0 .*systemctl restart"):
        await engine.open(lambda end: None)
    assert await system.engine.list() == []


async def test_the_engine_says_whether_the_launcher_is_roots(system):
    assert system.engine.privileged


def usermod(*words: str) -> None:
    subprocess.run(["usermod", *words], check=True, capture_output=True)


def snapshot_of(system) -> dict[str, str]:
    """A snapshot as the service keeps it; the two fields of a specification that name it."""
    found = system.snapshot({"a.py": "print('hello')"})
    service, snapshots = system.accounts.service, system.launcher.snapshots
    path = snapshots / f"{found['snapshot_sha256']}.tar"
    os.rename(found["snapshot"], path)
    os.chown(path, service.uid, service.gid)
    return {**found, "snapshot": str(path)}
