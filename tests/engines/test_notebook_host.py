"""A notebook job: executed, saved while it runs, counted, interrupted, and its end told by the exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

HOST = "jupyter_gpupool.engines.local.notebook_host"


class Desk:
    """The folders of one notebook job."""

    def __init__(self, root: Path) -> None:
        self.code, self.out, self.job, self.work = (root / name for name in ("code", "out", "job", "work"))
        for folder in (self.code / ".gpupool", self.out, self.job, self.work):
            folder.mkdir(parents=True)

    def write(self, *cells: str, where: str = ".gpupool/notebook.ipynb") -> None:
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        notebook.cells[0].metadata["tags"] = ["parameters"]
        nbformat.write(notebook, self.code / where)

    def start(self, **entry: object) -> subprocess.Popen[str]:
        entry = {"notebook": "night run.ipynb", "parameters": {}, "kernel": "python3", **entry}
        places = {
            "GPUPOOL_ENTRY": json.dumps(entry),
            "GPUPOOL_CODE_DIR": str(self.code),
            "GPUPOOL_OUT_DIR": str(self.out),
            "GPUPOOL_JOB_DIR": str(self.job),
        }
        return subprocess.Popen(
            [sys.executable, "-I", "-m", HOST],
            cwd=self.work,
            env={**os.environ, **places},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, **entry: object) -> tuple[int, str, str]:
        with self.start(**entry) as process:
            out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def saved(self) -> nbformat.NotebookNode:
        return nbformat.read(self.out / "night run.ipynb", as_version=4)

    def progress(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in (self.job / "progress.jsonl").read_text().splitlines()]

    def wait_for(self, name: str) -> None:
        give_up = time.monotonic() + 30
        while not (self.work / name).exists():
            assert time.monotonic() < give_up
            time.sleep(0.02)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_it_is_executed_with_its_parameters_in_the_working_directory(desk):
    desk.write("rate = 1", "print('rate', rate)\nopen('made', 'w').close()", "rate * 2")
    code, out, _ = desk.run(parameters={"rate": 21})
    assert code == 0
    assert out == "rate 21\n"
    assert (desk.work / "made").exists()
    assert desk.saved().cells[-1].outputs[0].data["text/plain"] == "42"
    assert [(line["fraction"], line["values"]) for line in desk.progress()] == [
        (n / 4, {"cells_done": n, "cells": 4}) for n in (1, 2, 3, 4)
    ]
    assert sorted(file.name for file in desk.out.iterdir()) == ["night run.ipynb"]
    assert sorted(file.name for file in desk.work.iterdir()) == ["made"]


def test_a_cell_that_fails_ends_it_with_a_short_traceback(desk):
    desk.write("print('first')", "def deep(n):\n    return 1 / n\ndeep(0)", "print('never')")
    code, out, err = desk.run()
    assert (code, out) == (1, "first\n")
    assert "Cell 2 of the notebook failed:" in err
    assert "ZeroDivisionError: division by zero" in err
    assert "\x1b" not in err
    assert "notebook_host" not in err
    saved = desk.saved()
    assert saved.cells[-2].outputs[0].ename == "ZeroDivisionError"
    assert saved.cells[-1].outputs == []


def test_it_is_saved_while_it_runs_and_when_it_is_told_to_end(desk):
    desk.write(
        "print('kept')",
        "import time\nopen('running', 'w').close()\ntry:\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    open('interrupted', 'w').close()\n    raise",
        "print('never')",
    )
    with desk.start() as process:
        desk.wait_for("running")
        assert desk.saved().cells[0].outputs[0].text == "kept\n"
        kernel = next(int(pid) for pid in _children(process.pid))
        os.kill(kernel, signal.SIGTERM)  # a job's end is asked of all its processes
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 143
    assert (desk.work / "interrupted").exists()
    saved = desk.saved()
    assert saved.cells[1].outputs[0].ename == "KeyboardInterrupt"
    assert saved.cells[2].outputs == []


def test_a_cell_that_ends_well_when_interrupted_is_the_last(desk):
    desk.write(
        "import time\nopen('running', 'w').close()\n"
        "try:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('checkpoint')",
        "print('never')",
    )
    with desk.start() as process:
        desk.wait_for("running")
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (143, "checkpoint\n")
    assert [line["fraction"] for line in desk.progress()] == [0.5]


def test_a_notebook_whose_last_cell_ends_well_when_interrupted_is_done(desk):
    desk.write(
        "import time\nopen('running', 'w').close()\n"
        "try:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('checkpoint')"
    )
    with desk.start() as process:
        desk.wait_for("running")
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "checkpoint\n")


def test_a_kernel_that_dies(desk):
    desk.write("print('kept')", "import os; os._exit(9)")
    code, _, err = desk.run()
    assert code == 1
    assert "The notebook's kernel died." in err
    assert "Traceback" not in err
    assert desk.saved().cells[0].outputs[0].text == "kept\n"


def test_a_kernel_that_does_not_start(desk, tmp_path, monkeypatch):
    folder = tmp_path / "share" / "kernels" / "broken"
    folder.mkdir(parents=True)
    spec = {"argv": ["/bin/false", "{connection_file}"], "display_name": "Broken", "language": "python"}
    (folder / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share"))
    desk.write("1")
    code, _, err = desk.run(kernel="broken")
    assert code == 1
    assert "The kernel 'broken' failed: " in err
    assert "Traceback" not in err


def test_a_kernel_that_nobody_knows(desk):
    desk.write("1")
    code, _, err = desk.run(kernel="no-such-kernel")
    assert code == 2
    assert err.startswith("There is no kernel named 'no-such-kernel' here; known kernels: ")
    assert "python3" in err


@pytest.mark.parametrize("content", ["", "{}", "not json"])
def test_a_file_that_is_no_notebook(desk, content):
    (desk.code / "night run.ipynb").write_text(content)
    code, _, err = desk.run()
    assert code == 2
    assert "not a notebook" in err
    assert "Traceback" not in err


def test_a_notebook_outside_the_snapshot(desk):
    desk.write("1", where="../work/other.ipynb")
    code, _, err = desk.run(notebook="../work/other.ipynb")
    assert code == 2
    assert "not in the snapshot" in err


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
