"""What runs on the job's side, in the interpreters where jobs run: the three calls, and the hosts."""

from __future__ import annotations

import json
import os
import pickle
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path

import cloudpickle
import pytest

from jupyter_gpupool.client import hosts, jobside
from jupyter_gpupool.client.enable import enable, make_portable, recorded_python
from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.client.home import Home
from jupyter_gpupool.client.portable import gpupool_job
from tests.faces.unix import PortService

HOSTS = Path(hosts.__file__).parent
PORTABLE = Path(gpupool_job.__file__).parent


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Return the folder of a job's run, with the environment of a job."""
    folders = {"DIR": tmp_path / "1", "OUT_DIR": tmp_path / "out", "CODE_DIR": tmp_path / "1" / "code"}
    for path in (*folders.values(), tmp_path / "1" / "code" / ".gpupool"):
        path.mkdir(exist_ok=True)
    monkeypatch.setenv("GPUPOOL_JOB_DIR", str(folders["DIR"]))
    monkeypatch.setenv("GPUPOOL_OUT_DIR", str(folders["OUT_DIR"]))
    monkeypatch.setenv("GPUPOOL_CODE_DIR", str(folders["CODE_DIR"]))
    monkeypatch.setenv("GPUPOOL_CHECKPOINT_DIR", str(tmp_path / "checkpoint"))
    return tmp_path / "1"


# -- the three calls ---------------------------------------------------------------------------------


def test_outside_a_job_nothing_happens(tmp_path, monkeypatch):
    for name in ("GPUPOOL_JOB_DIR", "GPUPOOL_CHECKPOINT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    assert jobside.should_stop() is False
    assert signal.getsignal(signal.SIGTERM) is before
    jobside.progress(0.5, loss=1)
    assert list(tmp_path.iterdir()) == []
    assert jobside.checkpoint_dir() == str(tmp_path / "checkpoint")


LATE = """
import os, signal, gpupool_job

class Late:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGTERM):
        kill(pid, number)  # Python has given up its handlers by now

late = Late()
assert not gpupool_job.should_stop()
open(os.environ["GPUPOOL_JOB_DIR"] + "/stop", "w").close()
assert gpupool_job.should_stop()
print("saved", flush=True)
"""


def test_a_signal_that_comes_while_a_job_ends_that_knows_already_does_not_kill_it(job):
    environ = {**os.environ, "PYTHONPATH": str(PORTABLE)}
    done = subprocess.run(
        [sys.executable, "-c", LATE], env=environ, capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout) == (0, "saved\n"), done.stderr


def test_a_marker_says_stop(job):
    code = "import gpupool_job; print(gpupool_job.should_stop())"
    run = [sys.executable, "-c", code]
    environ = {**os.environ, "PYTHONPATH": str(PORTABLE)}
    assert subprocess.run(run, env=environ, capture_output=True).stdout == b"False\n"
    (job / "stop").touch()
    assert subprocess.run(run, env=environ, capture_output=True).stdout == b"True\n"


def test_progress_is_one_line_each(job):
    numpy = pytest.importorskip("numpy")
    jobside.progress(
        0.25, loss=numpy.float32(0.5), step=3, note="x\ny", bad=float("nan"), array=numpy.arange(2)
    )
    jobside.progress(7)
    jobside.progress(epoch=None)
    lines = [json.loads(line, parse_constant=pytest.fail) for line in (job / "progress.jsonl").open()]
    assert [line["fraction"] for line in lines] == [0.25, 1.0, None]
    assert lines[0]["values"] == {"loss": 0.5, "step": 3, "note": "x\ny", "bad": "nan", "array": "[0 1]"}
    assert lines[2]["values"] == {"epoch": None}
    assert lines[0]["t"] <= time.time()


@pytest.fixture
def https(tmp_path):
    """A service behind https with a certificate of its own, and the environment of a job of its elsewhere."""
    key = tmp_path / "key.pem"
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", tmp_path / "cert.pem"]
    subprocess.run([*make.split(), *names], check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "cert.pem", key)
    server = PortService(tls)
    server.environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(PORTABLE),
        "SSL_CERT_FILE": str(tmp_path / "cert.pem"),
        "GPUPOOL_URL": f"https://localhost:{server.port}/services/gpupool",
        "GPUPOOL_TOKEN": "gpj_17",
        "GPUPOOL_JOB_ID": "17",
    }
    yield server
    server.end()


@pytest.mark.requires_server("openssl")
def test_a_job_that_shares_no_folder_reports_over_https_with_its_own_token(https, bare_python):
    code = "import gpupool_job as g; g.progress(0.5, loss=1); g.progress(0.6); g.progress(1)"
    done = subprocess.run([bare_python, "-S", "-c", code], env=https.environ, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert [call.path for call in https.calls] == ["/services/gpupool/api/v1/jobs/17/progress"] * 2
    assert [call.json for call in https.calls] == [  # the one in between came too soon
        {"fraction": 0.5, "values": {"loss": 1}},
        {"fraction": 1.0, "values": {}},
    ]
    assert {call.headers["Authorization"] for call in https.calls} == {"token gpj_17"}


@pytest.mark.requires_server("openssl")
@pytest.mark.parametrize(
    "stranger", [{"SSL_CERT_FILE": "/dev/null"}, {"GPUPOOL_URL": "http://localhost:{port}"}]
)
def test_a_job_reports_to_nobody_who_cannot_prove_who_they_are(https, stranger):
    environ = {**https.environ, **{name: text.format(port=https.port) for name, text in stranger.items()}}
    code = "import gpupool_job as g; g.progress(0.5)"
    done = subprocess.run([sys.executable, "-S", "-c", code], env=environ, capture_output=True, text=True)
    assert (done.returncode, done.stderr, https.calls) == (0, "", [])


def test_reports_over_the_network_are_rare_and_rarer_where_none_arrives(monkeypatch):
    sent, arrives = [], [True, False, True]
    monkeypatch.setattr(
        gpupool_job, "_post", lambda report: sent.append(report["fraction"]) or arrives.pop(0)
    )
    remote = gpupool_job._Remote()
    for now, fraction in [(0, 0.1), (4, 0.2), (5, 0.3), (64, 0.4), (65, 0.5)]:
        remote.send({"fraction": fraction}, float(now))
    assert sent == [0.1, 0.3, 0.5]


def test_checkpoints_have_a_folder(job, tmp_path):
    assert jobside.checkpoint_dir() == str(tmp_path / "checkpoint")
    assert (tmp_path / "checkpoint").is_dir()


WAITS = """
import sys, time
import {module} as gpupool
{before}
print(gpupool.should_stop(), flush=True)
while not gpupool.should_stop():
    time.sleep(0.005)
print("saved")
"""


def waiting(python, environ, module="gpupool_job", before=""):
    code = WAITS.format(module=module, before=before)
    process = subprocess.Popen([python, "-S", "-c", code], env=environ, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "False\n"
    return process


def test_sigterm_asks_a_bare_python_to_stop_and_tells_the_others(job, bare_python):
    environ = {**os.environ, "PYTHONPATH": str(PORTABLE)}
    first, other = waiting(bare_python, environ), waiting(bare_python, environ)
    first.send_signal(signal.SIGTERM)
    assert first.communicate()[0] == other.communicate()[0] == "saved\n"
    assert (first.returncode, other.returncode) == (0, 0)


def test_a_program_that_never_asks_ends_at_sigterm(job, bare_python):
    code = "import gpupool_job, time; print(1, flush=True); time.sleep(60)"
    environ = {**os.environ, "PYTHONPATH": str(PORTABLE)}
    process = subprocess.Popen([bare_python, "-c", code], env=environ, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"1\n"
    process.terminate()
    process.communicate()
    assert process.returncode == -signal.SIGTERM


def test_a_programs_own_handler_stays(job, bare_python):
    before = (
        "import signal; signal.signal(signal.SIGTERM, lambda *_: (print('own', flush=True), sys.exit(3)))"
    )
    process = waiting(bare_python, {**os.environ, "PYTHONPATH": str(PORTABLE)}, before=before)
    process.terminate()
    assert process.communicate()[0] == "own\n"
    assert process.returncode == 3


def test_a_thread_may_ask(job):
    code = (
        "import gpupool_job, threading\n"
        "thread = threading.Thread(target=lambda: print(gpupool_job.should_stop()))\n"
        "thread.start(); thread.join()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(PORTABLE)}, capture_output=True
    )
    assert done.stdout == b"False\n"


# -- other interpreters ------------------------------------------------------------------------------


def test_a_home_offers_the_package_to_other_interpreters(tmp_path, bare_python):
    home = Home(tmp_path / "home")
    home.make()
    make_portable(home)
    make_portable(home)
    assert sorted(path.name for path in home.portable.iterdir()) == [
        "gpupool_job.py",
        "jupyter_gpupool",
        "python",
    ]
    assert recorded_python(home) == sys.executable
    code = "import gpupool_job, jupyter_gpupool as g; print(g.should_stop(), gpupool_job.should_stop())"
    done = subprocess.run(
        [bare_python, "-S", "-c", code],
        env={"PYTHONPATH": str(home.portable)},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("False False\n", "")


def test_enabling_another_python_writes_one_file(tmp_path):
    environ = {"GPUPOOL_HOME": str(tmp_path / "home")}
    Home.of(environ).make()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    before = set((tmp_path / "venv").rglob("*"))
    written = enable(python, environ)
    assert set((tmp_path / "venv").rglob("*")) - before == {written}
    assert enable(python, environ) == written
    code = "import gpupool_job, jupyter_gpupool; print(gpupool_job.should_stop())"
    assert subprocess.run([python, "-I", "-c", code], capture_output=True).stdout == b"False\n"
    with pytest.raises(Refused, match="there is no such file"):
        enable(str(tmp_path / "none"), environ)
    if os.geteuid() != 0:
        written.unlink()
        written.parent.chmod(0o500)
        with pytest.raises(Refused, match="cannot be written"):
            enable(python, environ)


# -- cells -------------------------------------------------------------------------------------------


def run_cell(job, source, python=sys.executable, sent=None, fetch=(), ipython=False):
    folder = job / "code" / ".gpupool"
    (folder / "cell.py").write_text(source)
    entry = {"fetch": list(fetch), "sent": sent is not None, "ipython": ipython}
    if sent is not None:
        (folder / "sent.pkl").write_bytes(sent if isinstance(sent, bytes) else pickle.dumps(sent, protocol=5))
    environ = {
        **os.environ,
        "PYTHONPATH": str(job / "code"),
        "IPYTHONDIR": str(job / "ipython"),
        "GPUPOOL_ENTRY": json.dumps(entry),
    }
    return subprocess.run(
        [python, str(HOSTS / "cell_host.py")],
        env=environ,
        capture_output=True,
        text=True,
        cwd=job,
        timeout=60,
    )


def fetched(job):
    return pickle.loads((job.parent / "out" / "fetched.pkl").read_bytes())


def test_a_cell_gets_and_gives_variables_in_a_bare_python(job, bare_python):
    (job / "code" / "helpers.py").write_text("def twice(x): return 2 * x\n")
    done = run_cell(
        job,
        "import helpers\ny = helpers.twice(x)\nprint('hi')\ny + 1\n",
        bare_python,
        sent={"x": 20},
        fetch=["y"],
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "hi\n41\n", "")
    assert fetched(job) == {"y": 40}
    assert [path.name for path in (job.parent / "out").iterdir()] == ["fetched.pkl"]


def test_a_last_expression_is_shown_as_in_a_notebook(job):
    assert run_cell(job, "'a'").stdout == "'a'\n"
    assert run_cell(job, "'a';").stdout == ""
    assert run_cell(job, "None").stdout == ""
    assert run_cell(job, "# nothing\n").returncode == 0


def test_a_cells_error_shows_its_own_lines_only(job, bare_python):
    done = run_cell(job, "def f():\n    return 1 / 0  # here\n\n\nf()\n", bare_python, fetch=["x"])
    assert done.returncode == 1
    assert "1 / 0  # here" in done.stderr
    assert "line 5, in <module>" in done.stderr
    assert done.stderr.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert "cell_host.py" not in done.stderr
    assert list((job.parent / "out").iterdir()) == []


def test_a_cell_may_await_at_its_top_level(job, bare_python):
    done = run_cell(job, "import asyncio\nx = await asyncio.sleep(0, 'slept')\nx\n", bare_python, fetch=["x"])
    assert (done.returncode, done.stdout) == (0, "'slept'\n")
    assert fetched(job) == {"x": "slept"}
    assert run_cell(job, "import asyncio\nasyncio.run(asyncio.sleep(0))\n", bare_python).returncode == 0


def test_a_cells_exit_code_counts(job):
    assert run_cell(job, "import sys\nsys.exit(7)\n").returncode == 7


def test_what_a_cell_defines_can_be_pickled(job):
    source = "import pickle\nclass Net: pass\npickle.loads(pickle.dumps(Net()))\nnet = Net()\n"
    done = run_cell(job, source, fetch=["net"])
    assert done.returncode == 0, done.stderr
    assert type(fetched(job)["net"]).__name__ == "Net"  # by value: this process has no such class


def test_a_variable_to_bring_back_that_is_missing_or_cannot_be_pickled_is_named(job, bare_python):
    done = run_cell(job, "x = 1", bare_python, fetch=["x", "y"])
    assert done.returncode == 1
    assert done.stderr == "The cell ran, but there is no variable 'y' to bring back.\n"
    source = "import threading\nx = 1\nlock = threading.Lock()\n"
    done = run_cell(job, source, bare_python, fetch=["x", "lock"])
    assert done.returncode == 1
    assert done.stderr.startswith("The cell ran, but 'lock' cannot be pickled to bring it back: ")
    assert list((job.parent / "out").iterdir()) == []


def test_sent_variables_that_cannot_be_read_are_one_sentence(job, bare_python):
    done = run_cell(job, "x", bare_python, sent=b"cno_such_module\nx\n.")
    assert done.returncode == 1
    assert done.stderr == (
        "The variables sent cannot be read in this Python. "
        "ModuleNotFoundError: No module named 'no_such_module'\n"
    )


def test_magics_and_commands_run_where_ipython_is(job):
    source = "%env GPUPOOL_TEST=1\nfiles = !echo one two\nprint(files[0].split())\n"
    done = run_cell(job, source, fetch=["files"], ipython=True)
    assert done.returncode == 0, done.stderr
    assert "['one', 'two']" in done.stdout
    assert fetched(job) == {"files": ["one two"]}
    failed = run_cell(job, "%time 1 / 0\n", ipython=True)
    assert failed.returncode == 1
    assert "ZeroDivisionError" in failed.stdout + failed.stderr
    assert "\x1b" not in failed.stdout
    assert not list((job / "ipython").rglob("history.sqlite"))


# -- functions ---------------------------------------------------------------------------------------


def run_function(job, call):
    (job / "code" / ".gpupool" / "function.pkl").write_bytes(call)
    environ = {**os.environ, "PYTHONPATH": str(job / "code")}
    return subprocess.run(
        [sys.executable, str(HOSTS / "function_host.py")],
        env=environ,
        capture_output=True,
        text=True,
        cwd=job,
    )


def test_a_functions_result_is_saved(job):
    def train(x, scale=1):
        print("training")
        return {"loss": x * scale}

    done = run_function(job, cloudpickle.dumps((train, (2,), {"scale": 3})))
    assert (done.returncode, done.stdout, done.stderr) == (0, "training\n", "")
    assert pickle.loads((job.parent / "out" / "result.pkl").read_bytes()) == {"loss": 6}
    assert [path.name for path in (job.parent / "out").iterdir()] == ["result.pkl"]


def test_a_functions_error_is_its_own_traceback(job):
    def fails():
        raise ValueError("no such data")

    done = run_function(job, cloudpickle.dumps((fails, (), {})))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "ValueError: no such data"
    assert "function_host.py" not in done.stderr
    assert list((job.parent / "out").iterdir()) == []


def test_a_call_or_result_that_cannot_be_carried_is_one_sentence(job):
    done = run_function(job, b"cno_such_module\nx\n.")
    assert done.returncode == 1
    assert done.stderr == (
        "The function cannot be read in this Python. ModuleNotFoundError: No module named 'no_such_module'\n"
    )

    def gives_a_lock():
        import threading

        return threading.Lock()

    done = run_function(job, cloudpickle.dumps((gives_a_lock, (), {})))
    assert done.returncode == 1
    assert done.stderr.startswith("The function ran, but its result (a lock) cannot be pickled: ")
    assert list((job.parent / "out").iterdir()) == []
