"""The kinds of work, as the client sends them and its hosts run them."""

from __future__ import annotations

import json
import pickle
import textwrap
from pathlib import Path
from typing import Any

import nbformat
import pytest

from jupyter_gpupool.client import request
from jupyter_gpupool.client.request import Here, Prepared

OPTIONS = {"time": "10m", "cpus": "1", "mem": "1GiB"}


@pytest.fixture
def here(tmp_path: Path) -> Here:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "helper.py").write_text("def double(x):\n    return 2 * x\n")
    return Here(environ={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "MINE": "1"}, cwd=folder)


def run(call: Any, prepared: Prepared) -> dict[str, Any]:
    assert prepared.snapshot is not None
    assert call("PUT", f"snapshots/{prepared.snapshot.sha256}", prepared.snapshot.data).status == 201
    answer = call("POST", "jobs", prepared.body)
    assert answer.status == 201, answer
    return call.wait(answer.body["id"], patience=60)


def artifact(call: Any, job: dict[str, Any], name: str) -> bytes:
    answer = call("GET", f"jobs/{job['id']}/artifacts/{name}")
    assert answer.status == 200, (answer, call.log(job["id"]))
    return answer.body


def test_a_cell_with_what_it_takes_and_brings_back(start: Any, here: Here) -> None:
    call = start()
    options = OPTIONS | {"send": ["x"], "fetch": ["y"]}
    cell = "import helper\ny = helper.double(x)\nprint('y is', y)"
    job = run(call, request.prepare_cell(cell, {"x": 21}, options, here))
    assert (job["state"], call.log(job["id"])) == ("completed", b"y is 42\n")
    assert pickle.loads(artifact(call, job, "fetched.pkl"))["y"] == 42


def test_a_function_and_its_result(start: Any, here: Here) -> None:
    call = start()

    def train(steps: int, rate: float = 1.0) -> float:
        return steps * rate

    job = run(call, request.prepare_function(train, (4,), {"rate": 0.5}, OPTIONS, here))
    assert (job["state"], job["name"]) == ("completed", "train"), call.log(job["id"])
    assert pickle.loads(artifact(call, job, "result.pkl")) == 2.0


def test_a_script_with_its_modules(start: Any, here: Here) -> None:
    call = start()
    source = """
        import os, sys
        import helper
        print(helper.double(int(sys.argv[1])), os.getcwd(), os.environ["MINE"])
    """
    (here.cwd / "train.py").write_text(textwrap.dedent(source))
    prepared = request.prepare_script("train.py", ["4"], OPTIONS, here)
    (here.cwd / "helper.py").write_text("raise SystemError('the copy is what runs')")
    job = run(call, prepared)
    assert call.log(job["id"]).decode() == f"8 {here.cwd} 1\n"


def test_a_notebook_with_its_parameters(start: Any, here: Here) -> None:
    call = start()
    notebook = nbformat.v4.new_notebook()
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    parameters = nbformat.v4.new_code_cell("a = 1", metadata={"tags": ["parameters"]})
    notebook.cells = [parameters, nbformat.v4.new_code_cell("import helper\nprint(helper.double(a))")]
    nbformat.write(notebook, here.cwd / "n.ipynb")
    job = run(call, request.prepare_notebook("n.ipynb", OPTIONS | {"parameters": {"a": 5}}, here))
    assert job["state"] == "completed", call.log(job["id"])
    executed = json.loads(artifact(call, job, "n.ipynb"))
    assert "10" in json.dumps(executed["cells"][-1]["outputs"])
    assert job["progress"]["fraction"] == 1.0


def test_a_failing_cell_fails_the_notebook(start: Any, here: Here) -> None:
    call = start()
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell("1 / 0")]
    nbformat.write(notebook, here.cwd / "n.ipynb")
    job = run(call, request.prepare_notebook("n.ipynb", OPTIONS, here))
    assert (job["state"], job["exit_code"]) == ("failed", 1)
    assert "ZeroDivisionError" in job["diagnosis"]["summary"]


def test_a_command_in_the_copy_of_its_folder(start: Any, here: Here) -> None:
    call = start()
    options = OPTIONS | {"workdir": "snapshot"}
    job = run(call, request.prepare_command(["cat", "helper.py"], options, here))
    assert call.log(job["id"]).decode() == (here.cwd / "helper.py").read_text()


def test_a_script_without_a_snapshot(start: Any, here: Here) -> None:
    call = start()
    (here.cwd / "late.py").write_text("print('before')")
    prepared = request.prepare_script("late.py", [], OPTIONS | {"no_snapshot": True}, here)
    (here.cwd / "late.py").write_text("print('after')")
    job = call("POST", "jobs", prepared.body).body
    call.wait(job["id"])
    assert call.log(job["id"]) == b"after\n"


def test_parameters_that_no_environment_can_hold(start: Any) -> None:
    call = start()
    entry = {"notebook": "n.ipynb", "parameters": {"a": "x" * 200_000}}
    answer = call("POST", "jobs", call.command(kind="notebook", entry=entry, snapshot="0" * 64))
    assert answer.status == 422
    assert "200009 bytes" in answer.error["message"]
