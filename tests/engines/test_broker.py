"""A service that may not read its users' files has the launcher open them, and nothing else."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
from pathlib import Path

import pytest

from jupyter_gpupool.client.peercred import Peer
from jupyter_gpupool.engines.base import EngineError, NoSuchFileError
from jupyter_gpupool.engines.local import broker as broker_module
from jupyter_gpupool.engines.local import files as files_module
from jupyter_gpupool.engines.local.broker import Broker
from jupyter_gpupool.engines.local.files import DirectFiles, LauncherFiles

pytestmark = pytest.mark.asyncio

WRITES = (
    "import os\nprint('hello', flush=True)\nos.chdir(os.environ['GPUPOOL_ATTEMPT_DIR'] + '/../out')\n"
    "open('a', 'w').write('12')\nos.mkdir('deep')\nopen('deep/b', 'w').write('345')\n"
    "os.symlink('/etc/shadow', 'link')\nos.mkfifo('fifo')\n"
)


def read(files, job: int, *parts: str) -> bytes:
    descriptor = files.open(job, *parts)
    with open(descriptor, "rb") as file:
        return file.read()


async def test_the_service_reads_what_a_job_wrote(system):
    spec = system.python(WRITES)
    await system.run(spec)
    written = (system.attempt(spec).parent / "out" / "deep" / "b").stat().st_mtime

    def look() -> object:
        files = LauncherFiles(system.home)
        return [
            read(files, 1, "1", "log"),
            read(files, 1, "out", "a"),
            read(files, 1, "out", "deep", "b"),
            [(file.name, file.size) for file in files.list(1, "out")],
            files.list(1, "missing") + files.list(7),
            files.newest(1, "missing"),
            files.newest(1, "out") == written,
        ]

    expected = [b"hello\n", b"12", b"345", [("a", 2)], [], None, True]
    assert system.as_account(system.accounts.service, look) == str(expected)
    denied = system.as_account(system.accounts.service, (system.attempt(spec) / "log").read_text)
    assert denied.startswith("PermissionError")
    assert read(system.engine.files, 1, "1", "log") == b"hello\n"


async def test_a_file_that_grows_is_opened_once(system):
    spec = system.python("print(1, flush=True)\nimport time\ntime.sleep(0.2)\nprint(2)")
    await system.engine.start(spec)
    await system.logged(spec, 1)
    log = system.engine.files.open(spec.job, "1", "log")
    await system.end_of(spec.key)
    assert os.pread(log, 99, 0) == b"1\n2\n"
    with pytest.raises(OSError):
        os.write(log, b"x")
    os.close(log)


async def test_the_launcher_keeps_no_file_that_it_handed_over(system):
    spec = system.spec("true")
    await system.run(spec)
    os.close(system.engine.files.open(spec.job, "1", "log"))
    await system.engine.list()  # it has finished with the request before
    held = Path(f"/proc/{system.launcher.process.pid}/fd")
    assert system.attempt(spec) / "log" not in [name.readlink() for name in held.iterdir()]


@pytest.mark.parametrize(
    "path", ["out/link", "out/fifo", "out/deep", "out", "../../launcher.log", "1/exit.json/x", "nothing", ""]
)
async def test_nothing_but_a_regular_file_is_opened(system, path):
    spec = system.python(WRITES)
    await system.run(spec)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(NoSuchFileError):
        system.engine.files.open(spec.job, *path.split("/"))
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_hard_link_to_a_strangers_file_is_no_file_of_the_job(system):
    """The kernel may let a user link what they cannot read."""
    spec = system.python(WRITES)
    await system.run(spec)
    out = system.attempt(spec).parent / "out"
    (system.home / "secret").write_text("root's")
    os.link(system.home / "secret", out / "hard")
    (out / "bobs").write_text("bob's")
    os.chown(out / "bobs", system.accounts.bob.uid, -1)
    for name in ("hard", "bobs"):
        with pytest.raises(NoSuchFileError):
            system.engine.files.open(spec.job, "out", name)
    assert [file.name for file in system.engine.files.list(spec.job, "out")] == ["a"]


async def test_a_job_that_holds_its_file_does_not_hold_the_launcher(system, monkeypatch):
    """A lease on a file makes whoever opens it wait, unless they say that they will not."""
    spec = system.spec("true")
    await system.run(spec)
    path = system.attempt(spec).parent / "out" / "leased"
    monkeypatch.setattr(files_module, "_ANSWER_S", 2.0)
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)  # the kernel's word to whoever holds the lease
    with path.open("w") as file:
        os.fchown(file.fileno(), system.accounts.ada.uid, -1)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        with pytest.raises(NoSuchFileError):
            system.engine.files.open(spec.job, "out", "leased")
        assert await system.engine.list()
    signal.signal(signal.SIGIO, before)


async def test_a_job_is_removed_with_all_that_its_user_put_there(system):
    spec = system.python(WRITES + "for n in range(1500):\n    os.mkdir('d')\n    os.chdir('d')\n")
    await system.run(spec)
    system.engine.files.remove(spec.job)
    assert not system.attempt(spec).parent.exists()
    await system.until(lambda: not list((system.home / "jobs" / ".removed").iterdir()))
    assert os.path.exists("/etc/shadow")
    system.engine.files.remove(spec.job)


async def test_a_job_that_runs_is_not_removed(system):
    spec = system.spec("sleep", "60")
    await system.engine.start(spec)
    with pytest.raises(EngineError, match="1 is not over"):
        system.engine.files.remove(spec.job)
    assert system.attempt(spec).exists()


async def test_a_removal_that_a_dead_launcher_had_begun_goes_on(tmp_path, monkeypatch):
    (tmp_path / "7").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(broker_module, "_delete", lambda folder: None)
        Broker(tmp_path).remove(7)
    (left,) = (tmp_path / ".removed").iterdir()
    deleted = []
    monkeypatch.setattr(broker_module, "_delete", deleted.append)
    Broker(tmp_path).recover()
    assert deleted == [left]


async def test_a_folder_of_very_many_files_is_listed_in_part(tmp_path, monkeypatch):
    monkeypatch.setattr(files_module, "MOST_LISTED", 3)
    (tmp_path / "1" / "out").mkdir(parents=True)
    for n in range(9):
        (tmp_path / "1" / "out" / str(n)).touch()
    assert len(DirectFiles(tmp_path).list(1, "out")) == 3


async def test_who_asks_for_the_newest_of_very_many_files_holds_nobody_up(tmp_path, monkeypatch):
    waits, goes_on = os.pipe()

    def slow(self, job: int, *parts: str) -> float:
        os.close(goes_on)
        os.read(waits, 1)
        return 7.5

    monkeypatch.setattr(DirectFiles, "newest", slow)
    monkeypatch.setattr(broker_module, "close_all_but", lambda kept: None)
    passed = Broker(tmp_path).newest(1, ["checkpoint"])
    with socket.socket(fileno=passed.descriptor) as answer:
        with pytest.raises(BlockingIOError):
            answer.recv(99, socket.MSG_DONTWAIT)
        os.close(goes_on)
        assert answer.recv(99) == b'{"id":0,"result":7.5}\n'
    os.close(waits)


async def test_that_there_are_too_many_files_is_said(tmp_path, monkeypatch):
    def too_many(self, job: int, *parts: str) -> float:
        raise EngineError("too many")

    monkeypatch.setattr(DirectFiles, "newest", too_many)
    passed = Broker(tmp_path).newest(1, ["out"])
    with socket.socket(fileno=passed.descriptor) as answer, pytest.raises(EngineError, match="too many"):
        files_module._reply(answer)


async def test_without_a_launcher_one_sentence(system):
    system.launcher.kill()
    with pytest.raises(EngineError, match="opens no file now"):
        system.engine.files.open(1, "1", "log")


async def test_a_strangers_socket_is_asked_for_nothing(tmp_path, monkeypatch):
    """Whoever could put a socket there would otherwise choose what a user reads."""
    (tmp_path / "run").mkdir()
    path = tmp_path / "run" / "launcher.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        monkeypatch.setattr(files_module, "peer_of", lambda connection: Peer(1, os.geteuid() + 1))
        with pytest.raises(EngineError, match="belongs to another user"):
            LauncherFiles(tmp_path).open(1, "1", "log")
