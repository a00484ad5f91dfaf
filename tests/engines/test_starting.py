"""A job starts once, with exactly what was asked, or says in one sentence why it could not."""

from __future__ import annotations

import io
import json
import os
import signal
import tarfile
from pathlib import Path

import pytest

from jupyter_gpupool.engines.base import EngineError, Started

pytestmark = pytest.mark.asyncio


async def test_output_and_exit_code_are_reported(bench):
    spec = bench.spec("sh", "-c", "echo out; echo err >&2; exit 3")
    end = await bench.run(spec)
    assert (end.exit_code, end.signal, end.cause, end.tree_gone) == (3, None, "exit", True)
    assert sorted(bench.log(spec).splitlines()) == ["err", "out"]


async def test_a_signal_is_reported_as_one(bench):
    end = await bench.run(bench.spec("sh", "-c", "kill -USR1 $$"))
    assert (end.exit_code, end.signal, end.cause) == (None, 10, "exit")


async def test_the_same_key_starts_once(bench):
    spec = bench.spec("sh", "-c", "echo here; sleep 30")
    first = await bench.engine.start(spec)
    again = await bench.engine.start(spec)
    assert first == again
    await bench.logged(spec, 1)
    await bench.engine.stop(spec.key, cause="cancel", grace_s=0)
    await bench.end_of(spec.key)
    assert await bench.engine.start(spec) == first
    assert bench.log(spec).count("here") == 1


async def test_a_forgotten_key_never_runs_again(bench):
    spec = bench.spec("sh", "-c", "echo here")
    end = await bench.run(spec)
    assert await bench.engine.list() == [end]
    await bench.engine.forget(spec.key)
    assert await bench.engine.list() == []
    with pytest.raises(EngineError, match=r"1/1 has run already"):
        await bench.engine.start(spec)
    assert bench.log(spec).count("here") == 1


async def test_what_runs_cannot_be_forgotten(bench):
    spec = bench.spec("sleep", "30")
    started = await bench.engine.start(spec)
    with pytest.raises(EngineError, match="not over"):
        await bench.engine.forget(spec.key)
    assert await bench.engine.list() == [started]


async def test_keys_that_nobody_knows_are_no_error(bench):
    await bench.engine.stop("9/9", cause="cancel", grace_s=1)
    await bench.engine.forget("9/9")


async def test_the_job_has_its_own_session_environment_and_nothing_of_ours(bench):
    spec = bench.python(
        "import os, json, signal;"
        "print(json.dumps({'fds': sorted(os.listdir('/proc/self/fd')),"
        "'stdin': os.readlink('/proc/self/fd/0'),"
        "'sid': os.getsid(0) == os.getpid(), 'environ': dict(os.environ), 'cwd': os.getcwd(),"
        "'umask': os.umask(0), 'term': signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,"
        "'mask': len(signal.pthread_sigmask(signal.SIG_BLOCK, [])),"
        "'ignored': [line for line in open('/proc/self/status') if line.startswith('SigIgn')]}))",
        environment={"ONLY": "this", "LC_ALL": "C.UTF-8"},
        workdir="/",
    )
    assert (await bench.run(spec)).exit_code == 0
    seen = json.loads(bench.log(spec))
    assert seen["fds"] == ["0", "1", "2", "3"]  # 3 is the listing itself
    assert seen["stdin"] == "/dev/null"
    assert seen["sid"]
    assert seen["environ"] == {
        "ONLY": "this",
        "LC_ALL": "C.UTF-8",
        "GPUPOOL_ATTEMPT_DIR": str(bench.attempt(spec)),
    }
    assert seen["cwd"] == "/"
    assert seen["umask"] == 0o022
    assert seen["term"]
    assert seen["mask"] == 0
    ignored = {
        number for number in range(1, 65) if int(seen["ignored"][0].split()[1], 16) >> (number - 1) & 1
    }
    assert ignored <= {signal.SIGPIPE, signal.SIGXFSZ, 32, 33}  # Python's own, and the C library's own


async def test_what_we_write_is_for_the_owner_only(bench):
    spec = bench.spec("true")
    await bench.run(spec)
    folder = bench.attempt(spec)
    assert folder.stat().st_mode & 0o777 == 0o700
    modes = {file.name: file.stat().st_mode & 0o777 for file in folder.iterdir() if file.is_file()}
    assert modes == dict.fromkeys(["spec.json", "runner.json", "exit.json", "log"], 0o600)


async def test_the_snapshot_is_unpacked_before_the_program_runs(bench):
    spec = bench.spec(
        "sh", "-c", "cat code/train.py code/.gpupool/cell.py",
        **bench.snapshot({"train.py": "print(1)\n", ".gpupool/cell.py": "x = 2\n"}),
        workdir=str(bench.home / "jobs" / "7" / "1"),
        job=7,
    )  # fmt: skip
    assert (await bench.run(spec)).exit_code == 0
    assert bench.log(spec) == "print(1)\nx = 2\n"


async def test_a_changed_snapshot_is_refused(bench):
    named = bench.snapshot({"train.py": "print(1)\n"})
    Path(named["snapshot"]).write_bytes(b"x" * 10240)
    spec = bench.spec("sh", "-c", "echo ran", **named)
    end = await bench.run(spec)
    assert (end.cause, end.exit_code, end.tree_gone) == ("start", None, True)
    assert "SHA-256" in end.message
    assert bench.log(spec) == ""


async def test_a_hostile_snapshot_is_refused(bench, tmp_path):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        link = tarfile.TarInfo("door")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        tar.addfile(link)
    end = await bench.run(bench.spec("true", **bench.tar(buffer.getvalue())))
    assert end.cause == "start"
    assert "'door'" in end.message


async def test_a_snapshot_that_is_not_there(bench):
    end = await bench.run(bench.spec("true", snapshot=str(bench.home / "no.tar"), snapshot_sha256="0" * 64))
    assert end.cause == "start"
    assert "no such file" in end.message
    assert "no.tar" in end.message


async def test_a_working_directory_that_is_not_there(bench):
    end = await bench.run(bench.spec("true", workdir="/nowhere/at/all"))
    assert (end.cause, end.exit_code) == ("start", None)
    assert "/nowhere/at/all" in end.message


@pytest.mark.parametrize(
    ("name", "content", "mode", "says"),
    [
        ("missing", None, 0, "no such program"),
        ("plain", "#!/bin/sh\n", 0o644, "not executable"),
        ("shebang", "#!/no/such/interpreter\n", 0o755, "interpreter"),
        ("noexec", "no first line\n", 0o755, "first line"),
    ],
)
async def test_a_program_that_cannot_run(bench, name, content, mode, says):
    program = bench.home / name
    if content is not None:
        program.write_text(content)
        program.chmod(mode)
    end = await bench.run(bench.spec(str(program)))
    assert (end.cause, end.exit_code) == ("start", None)
    assert str(program) in end.message
    assert says in end.message


async def test_arguments_that_are_too_long(bench):
    end = await bench.run(bench.spec("true", "x" * 3_000_000))
    assert end.cause == "start"
    assert "longer than the system allows" in end.message


async def test_a_log_that_is_a_link_is_not_written_through(bench):
    victim = bench.home / "victim"
    victim.write_text("mine")
    spec = bench.spec("sh", "-c", "echo overwritten")
    bench.attempt(spec).mkdir(parents=True)
    (bench.attempt(spec) / "log").symlink_to(victim)
    end = await bench.run(spec)
    assert end.cause == "start"
    assert victim.read_text() == "mine"


async def test_a_folder_that_cannot_be_made(bench):
    (bench.home / "file").write_text("")
    spec = bench.spec("true", folder=str(bench.home / "file" / "1"))
    started = await bench.engine.start(spec)
    assert isinstance(started, Started)
    assert started.pid == 0
    end = await bench.end_of(spec.key)
    assert end.cause == "start"
    assert "could not be started: not a directory" in end.message


async def test_no_process_left_to_fork(unopened, launch):
    def no_forks() -> None:
        def refuse() -> int:
            raise BlockingIOError(11, "Resource temporarily unavailable")

        os.fork = refuse

    launch(alter=no_forks)
    await unopened.open()
    end = await unopened.run(unopened.spec("true"))
    assert end.cause == "start"
    assert "resource temporarily unavailable" in end.message


async def test_many_at_once(bench):
    specs = [bench.spec("sh", "-c", f"exit {number}") for number in range(12)]
    for spec in specs:
        await bench.engine.start(spec)
    codes = [(await bench.end_of(spec.key)).exit_code for spec in specs]
    assert codes == list(range(12))


async def test_a_wrong_specification_is_refused_with_a_sentence(bench):
    with pytest.raises(EngineError, match="names no program"):
        await bench.engine.start(bench.spec())
    with pytest.raises(EngineError, match="limit"):
        await bench.engine.start(bench.spec("true", limit_s=0))
    assert await bench.engine.list() == []
