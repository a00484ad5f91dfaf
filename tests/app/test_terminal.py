"""The command line as processes of their own, over a real service with simulated cards."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.app.conftest import Said
from tests.faces.real import SITE, environment

Terminal = Callable[..., Said]
SCRIPT = """
import os, sys
print("arguments", sys.argv[1:], os.environ["GPUPOOL_GPUS"])
open(os.path.join(os.environ["GPUPOOL_OUT_DIR"], "result.json"), "w").write("{}")
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


@contextmanager
def started(home: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Start a command that goes on by itself."""
    command = [sys.executable, "-m", "jupyter_gpupool.app", *words]
    process = subprocess.Popen(
        command, env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_a_script_runs_detached_and_its_results_are_fetched(
    terminal: Terminal, script: Path, tmp_path: Path
) -> None:
    receipt = terminal("submit", "train.py", "0", "--gpus", "1", "--time", "5m").out.splitlines()
    number = re.match(r"Job (\d+) ", receipt[0])[1]  # type: ignore[index]
    terminal("wait", number)
    assert re.fullmatch(r"arguments \['0'\] SIM-node1-\d\n", terminal("logs", number).out)
    folder = tmp_path / "results"
    assert terminal("fetch", number, str(folder)).out == f"Copied {folder}/result.json.\n"
    assert terminal("show", number, "--json").json["state"] == "completed"


def test_waiting_ends_with_the_exit_code_of_the_job(terminal: Terminal, script: Path) -> None:
    said = terminal("submit", "train.py", "3", "--gpus", "0", "--wait", "--json", code=3)
    (job,) = said.json["jobs"]
    assert job["exit_code"] == 3
    assert "Finished with exit code 3." in terminal("why", str(job["id"])).out


def test_a_command_runs_detached_in_the_folder_it_was_submitted_from(
    terminal: Terminal, tmp_path: Path
) -> None:
    program = 'echo "$1 in $(pwd) on $GPUPOOL_GPUS"; exit 4'
    receipt = terminal("submit", "--gpus", "1", "--time", "5m", "--", "sh", "-c", program, "sh", "--gpus")
    took, held_back, output, *_ = receipt.out.splitlines()
    number = re.match(r"Job (\d+) \(simulated cards\) took the command sh, ", took)[1]  # type: ignore[index]
    assert held_back.startswith("Held back: ")
    assert output.startswith("Output goes to ")
    terminal("wait", number, code=4)
    assert re.fullmatch(rf"--gpus in {tmp_path} on SIM-node1-\d\n", terminal("logs", number).out)
    assert terminal("show", number, "--json").json["kind"] == "command"


def test_a_notebook_runs_with_its_parameters(terminal: Terminal, tmp_path: Path) -> None:
    cell = {"cell_type": "code", "source": "print('epochs', epochs)", "metadata": {}, "outputs": []}
    document = {
        "nbformat": 4,
        "nbformat_minor": 4,
        "metadata": {},
        "cells": [{**cell, "execution_count": None}],
    }
    (tmp_path / "report.ipynb").write_text(json.dumps(document))
    terminal("submit", "report.ipynb", "-p", "epochs=20", "--gpus", "0", "--wait")
    terminal("fetch", "last", "results")
    assert "epochs 20" in (tmp_path / "results" / "report.ipynb").read_text()


def test_every_answer_is_json_where_that_is_asked_for(terminal: Terminal, script: Path) -> None:
    number = str(terminal("submit", "train.py", "0", "--gpus", "0", "--json").json["id"])
    terminal("wait", number, "--json")
    for words in (
        *(["status"], ["jobs"], ["queue"], ["quota"], ["gpus"], ["report"], ["doctor"]),
        *(["show", number], ["why", number], ["logs", number], ["fetch", number]),
        *(["policy", "show"], ["policy", "history"], ["submit", "train.py", "--dry-run"]),
    ):
        assert isinstance(terminal(*words, "--json", code=None).json, dict), words


def test_a_job_is_held_released_requeued_and_cancelled(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "sleep.py").write_text("import time\ntime.sleep(200)\n")
    number = str(terminal("submit", "sleep.py", "--gpus", "2", "--json").json["id"])
    behind = str(terminal("submit", "sleep.py", "--gpus", "2", "--json").json["id"])
    assert terminal("hold", behind, "--json").json["jobs"][0]["state"] == "held"
    assert terminal("release", behind, "--json").json["jobs"][0]["state"] == "queued"
    assert terminal("why", behind, "--json").json["waiting"]["position"] == 1
    terminal("requeue", number)
    until(lambda: was_stopped(terminal("show", number, "--json").json))
    for job in (behind, number):
        terminal("cancel", job)
        terminal("wait", job, code=1)
        assert terminal("show", job, "--json").json["state"] == "cancelled"


def was_stopped(job: dict[str, object]) -> bool:
    """Whether the job waits again, or has started again already: it keeps its place in the queue."""
    return job["state"] == "queued" or job["attempt"] == 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--gpu-memory", "0GiB"], "zero"),
        (["--gpu-memory", "8"], "unit"),
        (["--gpu-memory", "NaN"], "NaN"),
        (["--gpus", "-1"], '--gpus "-1" is negative.'),
        (["--time", "-3h"], '--time "-3h" is negative.'),
        (["--gpu-memory", "-4GiB"], '--gpu-memory "-4GiB" is negative.'),
        (["--time", "0"], '--time "0" is zero.'),
        (["--gpu-memory", "9GiB"], "9"),
        (["--gpus", "3"], "at most 2"),
        (["--priority", "hihg"], "high"),
        (["--time", "soon"], "soon"),
        (["--gpu-compute", "50"], "--gpu-compute"),
    ],
)
def test_a_bad_value_is_one_sentence_and_queues_nothing(
    terminal: Terminal, script: Path, words: list[str], sentence: str
) -> None:
    before = terminal("jobs", "--json").json
    said = terminal("submit", *words, "train.py", code=None)
    assert said.code in (1, 2)
    assert said.out == ""
    assert sentence in said.err
    assert "Traceback" not in said.err
    assert len(said.err.splitlines()) == 1
    assert terminal("jobs", "--json").json == before


def test_a_policy_is_checked_under_its_own_name(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("groups:\n  vision: {qouta: 1}\n")
    for action in ("check", "diff", "apply"):
        said = terminal("policy", action, "site.yaml", code=1)
        assert said.err.splitlines()[1].startswith("site.yaml:2: groups.vision.qouta: ")


# -- in the foreground -------------------------------------------------------------------------------


def test_run_gives_a_command_its_gpu_and_mirrors_its_exit_code(terminal: Terminal) -> None:
    program = "import os, sys; print(os.environ['GPUPOOL_GPUS']); sys.exit(5)"
    said = terminal("run", "--gpus", "1", "--time", "5m", "--", sys.executable, "-c", program, code=5)
    assert re.fullmatch(r"SIM-node1-\d\n", said.out)
    assert said.err.startswith("Lease ")
    assert all(not card["leases"] for card in cards(terminal))


def test_run_says_that_a_program_is_not_there(terminal: Terminal) -> None:
    said = terminal("run", "--gpu-memory", "1GiB", "--", "no-such-program", code=2)
    assert said.err.splitlines()[-1] == "no-such-program cannot be run: No such file or directory."
    assert all(not card["leases"] for card in cards(terminal))


def test_run_passes_signals_on_and_gives_its_lease_back(terminal: Terminal, home: Path) -> None:
    program = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('ready', flush=True)\ntime.sleep(200)"
    )
    with started(home, "run", "--gpus", "1", "--", sys.executable, "-c", program) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 7
    assert all(not card["leases"] for card in cards(terminal))


def test_run_killed_loses_its_lease(terminal: Terminal, home: Path) -> None:
    with started(home, "run", "--gpus", "1", "--", "sleep", "200") as process:
        until(lambda: any(card["leases"] for card in cards(terminal)))
        child = children(process.pid)
        process.kill()
        process.wait(30)
        until(lambda: all(not card["leases"] for card in cards(terminal)))
        for pid in child:
            os.kill(pid, signal.SIGKILL)


def test_ctrl_c_while_it_waits_withdraws_the_request(terminal: Terminal, home: Path) -> None:
    with started(home, "run", "--gpus", "2", "--", "sleep", "200") as holder:
        until(lambda: all(card["leases"] for card in cards(terminal)))
        with started(home, "run", "--gpus", "1", "--", "true") as waiting:
            assert waiting.stderr is not None
            assert waiting.stderr.readline() != ""
            waiting.send_signal(signal.SIGINT)
            assert waiting.wait(30) == 130
            assert "Traceback" not in waiting.stderr.read()
        holder.send_signal(signal.SIGTERM)
        assert holder.wait(30) == 128 + signal.SIGTERM
    until(lambda: all(not card["leases"] for card in cards(terminal)))


def test_ctrl_c_on_a_followed_log_is_quiet(terminal: Terminal, home: Path, tmp_path: Path) -> None:
    (tmp_path / "talk.py").write_text("import time\nprint('begun')\ntime.sleep(200)\n")
    number = str(terminal("submit", "talk.py", "--gpus", "0", "--json").json["id"])
    with started(home, "logs", "-f", number) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read() == ""
    assert terminal("show", number, "--json").json["state"] == "running"
    terminal("cancel", number)


# -- the service -------------------------------------------------------------------------------------


def test_a_service_starts_by_itself_outlives_its_caller_and_keeps_jobs_over_a_stop(tmp_path: Path) -> None:
    home = tmp_path / "home"
    environ = {**environment(home), "GPUPOOL_SIMULATE": SITE}

    def terminal(*words: str) -> str:
        command = [sys.executable, "-m", "jupyter_gpupool.app", *words]
        done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done
        return done.stdout

    (tmp_path / "wait.py").write_text(
        "import pathlib, time\nprint('begun')\n"
        "while not pathlib.Path('go').exists():\n    time.sleep(0.05)\nprint('done')\n"
    )
    try:
        terminal("submit", "wait.py", "--gpus", "1")
        first = json.loads(terminal("status", "--json"))
        assert first["running"]
        assert first["simulated"]
        until(lambda: terminal("logs", "last") == "begun\n")
        assert "1 job goes on" in terminal("stop")
        assert json.loads(terminal("status", "--json"))["running"] is False
        (tmp_path / "go").touch()
        terminal("wait", "last")
        assert terminal("logs", "last") == "begun\ndone\n"
        assert json.loads(terminal("status", "--json"))["pid"] != first["pid"]
    finally:
        terminal("stop", "--jobs", "end")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to see root refused")
def test_root_serves_only_when_told_to(shell: Terminal) -> None:
    said = shell("serve", "--simulate", SITE)
    assert said == (
        2,
        "",
        "You are root, and every job would run as root. Use another account, or add --allow-root.\n",
    )


def cards(terminal: Terminal) -> list[dict[str, object]]:
    return [card for node in terminal("gpus", "--json").json["nodes"] for card in node["gpus"]]


def children(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def until(reached: Callable[[], object]) -> None:
    for _ in range(300):
        if reached():
            return
        time.sleep(0.1)
    raise AssertionError("never reached")
