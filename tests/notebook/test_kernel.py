"""All four kinds of work from a real kernel, over a real service; Interrupt while a log is followed."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from jupyter_client.manager import KernelManager

from tests.faces.real import end_jobs, environment, real_pool

VIEW = "application/vnd.jupyter.widget-view+json"


class Shown(NamedTuple):
    """What a cell printed, displayed, and raised."""

    out: str
    data: dict[str, Any]
    error: str


class Kernel:
    """A kernel in a process of its own."""

    def __init__(self, home: Path, folder: Path):
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(env=environment(home), cwd=str(folder))
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def run(self, cell: str, interrupt_at: str = "") -> Shown:
        """Run a cell; press Interrupt once its output matches `interrupt_at`."""
        request = self.client.execute(cell)
        out, data, error = "", {}, ""
        while True:
            message = self.client.get_iopub_msg(timeout=90)
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                out += content["text"]
            elif kind in ("execute_result", "display_data"):
                data |= content["data"]
            elif kind == "error":
                error = "\n".join(content["traceback"])
            elif kind == "status" and content["execution_state"] == "idle":
                return Shown(out, data, error)
            if interrupt_at and re.search(interrupt_at, out):
                interrupt_at = ""
                self.manager.interrupt_kernel()

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    with real_pool() as home:
        yield home


@pytest.fixture(autouse=True)
def _no_job_is_left(home: Path) -> Iterator[None]:
    yield
    end_jobs(home)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def kernel(home: Path, folder: Path) -> Iterator[Kernel]:
    kernel = Kernel(home, folder)
    assert kernel.run("%load_ext jupyter_gpupool").error == ""
    yield kernel
    kernel.close()


def test_a_script_runs_detached_and_leaves_its_files(kernel: Kernel, folder: Path) -> None:
    (folder / "helper.py").write_text("WORD = 'helped'\n")
    (folder / "train.py").write_text(
        "import os, sys, helper\n"
        "print(helper.WORD, sys.argv[1:], os.environ['GPUPOOL_GPUS'] != '', os.getcwd())\n"
        "open(os.environ['GPUPOOL_OUT_DIR'] + '/result.json', 'w').write('{\"loss\": 1}')\n"
    )
    shown = kernel.run("%gpupool submit train.py --gpus 1 --time 5m --name first -- --lr 0.1")
    receipt = shown.out.splitlines()
    assert re.match(r"Job \d+ \(simulated cards\) took train\.py and 1 local module", receipt[0])
    assert receipt[1].startswith("Held back:")
    assert receipt[2].startswith("Output goes to ")
    assert re.match(r"Job \d+ \(first\): ", shown.data["text/plain"])
    assert kernel.run("%gpupool wait last").error == ""
    assert kernel.run("%gpupool logs last").out == f"helped ['--lr', '0.1'] True {folder}\n"
    assert kernel.run("%gpupool fetch last").out == "Copied result.json.\n"
    assert json.loads((folder / "result.json").read_text()) == {"loss": 1}


def test_a_cell_takes_variables_along_and_brings_some_back(kernel: Kernel) -> None:
    kernel.run("numbers = list(range(10))")
    shown = kernel.run(
        "%%gpupool submit --gpu-memory 2GiB --send numbers --fetch total --wait\ntotal = sum(numbers)\ntotal"
    )
    assert shown.error == ""
    assert kernel.run("%gpupool logs last").out == "45\n"
    assert kernel.run("%gpupool fetch last\nprint(total)").out == "Set total.\n45\n"


def test_a_notebook_runs_with_its_parameters(kernel: Kernel, folder: Path) -> None:
    cells = [
        {"cell_type": "code", "source": source, "metadata": tags, "outputs": [], "execution_count": None}
        for source, tags in (("epochs = 1", {"tags": ["parameters"]}), ("print('epochs', epochs)", {}))
    ]
    document = {"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": cells}
    (folder / "report.ipynb").write_text(json.dumps(document))
    assert kernel.run("%gpupool submit report.ipynb -p epochs=20 --gpus 0 --wait").error == ""
    assert kernel.run("%gpupool fetch last").out.startswith("Copied report-")
    (executed,) = folder.glob("report-*.ipynb")
    assert "epochs 20" in executed.read_text()
    assert json.loads((folder / "report.ipynb").read_text()) == document


def test_a_function_returns_its_result(kernel: Kernel) -> None:
    kernel.run(
        "import jupyter_gpupool as gpupool\n"
        "def power(base, exponent):\n    return base ** exponent\n"
        "job = gpupool.submit(power, 2, 10, gpus=1, time='5m')"
    )
    assert kernel.run("print(job.result(), job.status)").out == "1024 completed\n"


def test_a_failure_is_diagnosed(kernel: Kernel) -> None:
    shown = kernel.run("%%gpupool submit --gpus 0 --wait\nraise ValueError('too small')")
    assert re.fullmatch(r"Job \d+ has failed\. %gpupool why \d+ says more\.", shown.error)
    assert "ValueError: too small" in kernel.run("%gpupool why last").data["text/plain"]


def test_interrupt_ends_the_following_of_a_log_and_not_the_job(kernel: Kernel) -> None:
    kernel.run("%%gpupool submit --gpus 0 --time 5m\nimport time\nprint('begun')\ntime.sleep(200)")
    shown = kernel.run("%gpupool logs -f last", interrupt_at="begun")
    assert shown.error == ""
    assert re.search(r"\(no longer following; job \d+ goes on\)", shown.out)
    assert kernel.run("print(gpupool.job('last').status)").out == "running\n"
    assert "Job" in kernel.run("%gpupool cancel last").data["text/plain"]
    shown = kernel.run("%gpupool wait last")
    assert "cancelled" in shown.error


def test_a_job_is_shown_alive_by_a_widget(kernel: Kernel) -> None:
    kernel.run(
        "%%gpupool submit --gpus 0 --time 5m\n"
        "import time, jupyter_gpupool as gpupool\n"
        "gpupool.progress(0.5, loss=1)\nprint('half')\ntime.sleep(200)"
    )
    shown = kernel.run("job = gpupool.job('last')\njob")
    assert set(shown.data) == {"text/plain", "text/html", VIEW}
    look = (
        "from jupyter_gpupool.notebook import live\n"
        "view = live._views[job.id]\n"
        "print(view._bar.value, view._cancel.layout.display, view._title.value, view._log.value)"
    )
    until(kernel, look, r"(?s)^0\.5  <b>Job .*half")
    kernel.run("view._cancel.click()")
    until(kernel, look, "cancelled")
    until(
        kernel,
        "import threading\nprint([t.name for t in threading.enumerate() if 'gpupool' in t.name])",
        r"\[\]",
    )


def test_a_closed_view_leaves_no_thread_behind(kernel: Kernel) -> None:
    kernel.run("%%gpupool submit --gpus 0 --time 5m\nimport time\ntime.sleep(200)")
    kernel.run("job = gpupool.job('last')\njob")
    names = "import threading\nprint([t.name for t in threading.enumerate() if 'gpupool-job' in t.name])"
    assert "gpupool-job" in kernel.run(names).out
    kernel.run("live._views[job.id].close()")
    until(kernel, names, r"\[\]")
    assert kernel.run("job.cancel()").error == ""


def test_a_kernel_takes_a_slice_and_gives_it_back(kernel: Kernel) -> None:
    shown = kernel.run(
        "%gpupool acquire --gpu-memory 2GiB --time 1h\nimport os\nprint(os.environ['GPUPOOL_GPUS'])"
    )
    assert re.search(r"Lease \d+ \(simulated cards\): 2 GiB of a GPU on node1: GPU \d", shown.out)
    assert re.search(r"^SIM-node1-\d$", shown.out, re.M)
    assert "Gave back lease" in kernel.run("%gpupool give-back").out
    assert kernel.run("print(os.environ.get('GPUPOOL_GPUS'))").out == "None\n"


def until(kernel: Kernel, cell: str, pattern: str) -> Shown:
    """Run a cell again and again until it prints what is expected."""
    for _ in range(300):
        shown = kernel.run(cell)
        if re.search(pattern, shown.out):
            return shown
        time.sleep(0.1)
    raise AssertionError(f"never {pattern!r}, at last: {shown}")
