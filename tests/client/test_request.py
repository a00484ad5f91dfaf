"""The requests of the five kinds of work, the interpreters they run in, and what is refused."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import tarfile
import threading
from io import BytesIO
from pathlib import Path

import pytest

from jupyter_gpupool.client import interpreter, payload, request
from jupyter_gpupool.client.cells import check_cell
from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.client.interpreter import Interpreter, ask, choose, kernel_python, kernels
from jupyter_gpupool.client.request import (
    Here,
    prepare_cell,
    prepare_command,
    prepare_function,
    prepare_notebook,
    prepare_script,
    receipt_lines,
)

RUNNING = sys.version_info[:2]
OLD = Interpreter("/old/python", "3.9.18", "0" * 64, frozenset({"cloudpickle"}))
PLAIN = Interpreter("/plain/python", ".".join(map(str, sys.version_info[:3])), "0" * 64)


@pytest.fixture
def here(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HF_TOKEN": "x", "PWD": "/", "A": "1"}
    return Here({**environ, "XDG_CONFIG_HOME": str(tmp_path / "config")}, work)


def in_tar(prepared, name):
    with tarfile.open(fileobj=BytesIO(prepared.snapshot.data)) as tar:
        return tar.extractfile(name).read()


# -- scripts and commands ----------------------------------------------------------------------------


def test_a_script_with_arguments(here):
    (here.cwd / "train.py").write_text("import helpers\n")
    (here.cwd / "helpers.py").write_text("")
    options = {
        "gpus": "2",
        "gpu_type": ["a100"],
        "time": "2h",
        "priority": "high",
        "resumable": True,
        "wait": True,
    }
    prepared = prepare_script("train.py", ["--lr", "0.1"], options, here)
    body = prepared.body
    assert body["kind"] == "script"
    assert body["name"] == "train.py"
    assert body["entry"] == {"script": "train.py", "args": ["--lr", "0.1"]}
    assert body["resources"] == {"gpus": "2", "gpu_type": ["a100"]}
    assert (body["time"], body["priority"], body["resumable"]) == ("2h", "high", True)
    assert "wait" not in body
    assert "window" not in body
    assert body["workdir"] == str(here.cwd)
    assert body["workdir_mode"] == "here"
    assert body["environment"]["A"] == "1"
    assert "PWD" not in body["environment"]
    assert body["held_back"] == ["HF_TOKEN"]
    assert body["interpreter"]["python"] == sys.executable
    assert body["interpreter"]["version"] == ".".join(map(str, sys.version_info[:3]))
    assert body["snapshot"] == prepared.snapshot.sha256
    assert prepared.snapshot.files == ("helpers.py", "train.py")
    json.dumps(body)


def test_the_receipt_has_three_lines(here):
    (here.cwd / "train.py").write_text("import helpers\n")
    (here.cwd / "helpers.py").write_text("")
    prepared = prepare_script("train.py", [], {}, here)
    reply = {"id": 17, "out": "/jobs/17/out", "log": "/jobs/17/1/log", "simulated": True, "warnings": []}
    version = ".".join(map(str, sys.version_info[:3]))
    count = len(prepared.body["environment"])
    took = f"train.py and 1 local module (15 bytes), {count} variables, Python {version} ({sys.executable})"
    assert receipt_lines(reply, prepared.taken, prepared.held_back) == [
        f"Job 17 (simulated cards) took {took}.",
        "Held back: HF_TOKEN (looks like a credential; --env HF_TOKEN sends it).",
        "Output goes to /jobs/17/out, the log to /jobs/17/1/log.",
    ]
    two = receipt_lines({**reply, "simulated": False, "warnings": ["Slow."]}, "x", ["A", "B"])
    assert two == [
        "Job 17 took x.",
        "Held back: A, B (look like credentials; --env NAME sends one).",
        "Output goes to /jobs/17/out, the log to /jobs/17/1/log.",
        "Note: Slow.",
    ]
    assert receipt_lines(reply, "x", [])[1] == "Held back: nothing."


def test_a_working_folder_that_is_gone_is_one_sentence(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(Refused, match="no longer there"):
        Here()


def test_what_the_user_allows_is_sent(here):
    from jupyter_gpupool.client.config import set_always_send

    set_always_send("HF_TOKEN", here.environ)
    prepared = prepare_command(["nvidia-smi"], {}, here)
    assert prepared.body["environment"]["HF_TOKEN"] == "x"
    assert prepared.held_back == ()


def test_without_a_snapshot_the_users_own_file_runs(here):
    (here.cwd / "train.py").write_text("")
    prepared = prepare_script("train.py", [], {"no_snapshot": True}, here)
    assert prepared.snapshot is None
    assert prepared.body["snapshot"] is None
    assert prepared.body["entry"]["script"] == str(here.cwd / "train.py")
    assert prepared.taken.startswith("train.py as it will be then, ")


def test_workdir_snapshot_takes_the_folder(here):
    (here.cwd / "train.py").write_text("")
    (here.cwd / "data.csv").write_text("1")
    (here.cwd / ".gitignore").write_text("train.py\n")
    prepared = prepare_script("train.py", [], {"workdir": "snapshot"}, here)
    assert prepared.snapshot.files == (".gitignore", "data.csv", "train.py")
    assert prepared.body["workdir_mode"] == "snapshot"
    assert prepare_command(["make"], {"workdir": "snapshot"}, here).snapshot.files == (
        ".gitignore",
        "data.csv",
    )
    assert prepare_command(["make"], {}, here).snapshot is None
    outside = here.cwd.parent / "outside.py"
    outside.write_text("")
    with pytest.raises(Refused, match="not in the folder that --workdir snapshot copies"):
        prepare_script(str(outside), [], {"workdir": "snapshot"}, here)


def test_a_command_needs_a_program(here):
    assert prepare_command(["/usr/bin/env", "x"], {}, here).body["name"] == "env"
    with pytest.raises(Refused, match="no command"):
        prepare_command([], {}, here)


@pytest.mark.parametrize(
    ("kind", "options", "problem"),
    [
        ("script", {"send": ["x"]}, "--send is for a cell; this is a script"),
        ("script", {"fetch": ["x"]}, "--fetch is for a cell"),
        ("cell", {"parameters": {"a": 1}}, "-p is for a notebook; this is a cell"),
        ("cell", {"no_snapshot": True}, "--no-snapshot is for a script"),
        ("script", {"no_snapshot": True, "workdir": "snapshot"}, "exclude each other"),
        ("notebook", {"python": "python3"}, "Use --kernel"),
    ],
)
def test_options_that_do_not_fit_are_refused(kind, options, problem):
    with pytest.raises(Refused, match=problem):
        request.check_options(options, kind)


def test_the_commit_is_recorded(here):
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    (here.cwd / "train.py").write_text("")

    def git(*arguments):
        identity = ["-c", "user.name=ada", "-c", "user.email=ada@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=here.cwd, check=True, capture_output=True)

    git("init")
    assert interpreter.git_state(here.cwd) is None  # no commit yet
    git("add", "train.py")
    git("commit", "-m", "first")
    clean = prepare_script("train.py", [], {}, here)
    assert clean.body["provenance"]["git"]["dirty"] is False
    assert len(clean.body["provenance"]["git"]["commit"]) == 40
    (here.cwd / "train.py").write_text("pass")
    changed = prepare_script("train.py", [], {}, here)
    assert changed.body["provenance"]["git"]["dirty"] is True
    assert changed.taken.endswith(f"commit {changed.body['provenance']['git']['commit'][:7]} with changes")


# -- cells -------------------------------------------------------------------------------------------


def test_a_cell_with_its_variables(here):
    (here.cwd / "helpers.py").write_text("")
    source = "import helpers\nz = x + y\n"
    prepared = prepare_cell(source, {"x": 1, "y": 2, "w": 3}, {"send": ["x", "y"], "fetch": ["z"]}, here)
    assert prepared.body["entry"] == {"fetch": ["z"], "sent": True, "ipython": False}
    assert prepared.snapshot.files == (
        ".gpupool/cell.py",
        ".gpupool/sent.pkl",
        "helpers.py",
    )
    assert in_tar(prepared, ".gpupool/cell.py").decode() == source
    assert pickle.loads(in_tar(prepared, ".gpupool/sent.pkl")) == {"x": 1, "y": 2}
    assert prepared.taken.startswith("the cell with x, y and 1 local module (")


def test_variables_that_cannot_be_sent_are_named(here):
    namespace = {"fine": [1], "lock": threading.Lock(), "items": [threading.Lock()]}
    with pytest.raises(
        Refused, match=r"^The variable 'lock' \(a lock\) cannot be pickled: .*Make it inside the job"
    ):
        prepare_cell("pass", namespace, {"send": ["fine", "lock"]}, here)
    with pytest.raises(Refused, match=r"^The variable 'items' \(a list\) cannot be pickled"):
        prepare_cell("pass", namespace, {"send": ["fine", "items"]}, here)
    with pytest.raises(Refused, match=r"--send nope: there is no variable 'nope' here"):
        prepare_cell("pass", namespace, {"send": ["nope"]}, here)
    with pytest.raises(Refused, match=r"--fetch a\.b: this is not the name of a variable"):
        prepare_cell("pass", namespace, {"fetch": ["a.b"]}, here)


def test_variables_travel_between_equal_pythons_only(here, monkeypatch):
    monkeypatch.setattr(interpreter, "ask", lambda python, kernel=None: OLD)
    with pytest.raises(
        Refused, match=r"equal versions of Python only: this is 3\.\d+, /old/python is 3\.9\.18"
    ):
        prepare_cell("pass", {"x": 1}, {"send": ["x"]}, here)
    with pytest.raises(Refused, match="Functions travel"):
        prepare_function(len, (), None, {}, here)
    prepare_cell("pass", {}, {}, here)


@pytest.mark.parametrize(
    "source", ["x = 1", "await f()", "async with a:\n    pass", "x = 5 % 3", "# !ls\nx = '%d?'"]
)
def test_plain_python_needs_no_ipython(source):
    assert check_cell(source, PLAIN, RUNNING) is False


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("%time x = 1", 1),
        ("x = 1\n!ls -l", 2),
        ("y = 1\nfiles = !ls", 2),
        ("%%time\npass", 1),
        ("x = 1\nlen?", 2),
    ],
)
def test_a_cell_that_needs_ipython_names_the_line_where_there_is_none(source, line):
    with pytest.raises(
        Refused, match=rf"^Line {line} of the cell .* needs IPython, which /plain/python does not have"
    ):
        check_cell(source, PLAIN, RUNNING)
    with_ipython = Interpreter("/p", PLAIN.version, "", frozenset({"IPython"}))
    assert check_cell(source, with_ipython, RUNNING) is True


def test_a_cell_that_is_no_python_is_refused():
    with pytest.raises(Refused, match=r"^Line 2 of the cell is not valid Python: "):
        check_cell("x = 1\nx = = 2", PLAIN, RUNNING)
    with pytest.raises(Refused, match="The cell is empty"):
        check_cell(" \n", PLAIN, RUNNING)
    assert check_cell("x = = 2", OLD, RUNNING) is False  # another Python may read more


# -- notebooks ---------------------------------------------------------------------------------------


def notebook(path, *sources, kernel="python3", nbformat=4):
    cells = [{"cell_type": "code", "source": source, "metadata": {}, "outputs": []} for source in sources]
    cells.insert(0, {"cell_type": "markdown", "source": ["import nothing"], "metadata": {}})
    metadata = {"kernelspec": {"name": kernel}} if kernel else {}
    path.write_text(
        json.dumps({"nbformat": nbformat, "nbformat_minor": 5, "metadata": metadata, "cells": cells})
    )


def test_a_notebook_with_parameters(here):
    sub = here.cwd / "sub"
    sub.mkdir()
    (sub / "helpers.py").write_text("")
    (here.cwd / "common.py").write_text("")
    notebook(sub / "fit.ipynb", ["%matplotlib inline\n", "import helpers\n"], "import common", "not python (")
    prepared = prepare_notebook("sub/fit.ipynb", {"parameters": {"lr": 0.1}}, here)
    assert prepared.body["entry"] == {"notebook": "fit.ipynb", "parameters": {"lr": 0.1}, "kernel": "python3"}
    assert prepared.body["interpreter"]["kernel"] == "python3"
    assert prepared.snapshot.own_files == ("common.py", "helpers.py")
    assert in_tar(prepared, ".gpupool/notebook.ipynb") == (sub / "fit.ipynb").read_bytes()
    assert prepared.snapshot.files == (".gpupool/notebook.ipynb", "common.py", "helpers.py")


def test_what_is_no_notebook_is_refused(here):
    for text in ("", "[]", "{}", '{"nbformat": 4, "cells": 3}'):
        (here.cwd / "x.ipynb").write_text(text)
        with pytest.raises(Refused, match="is not a notebook"):
            prepare_notebook("x.ipynb", {}, here)
    notebook(here.cwd / "x.ipynb", nbformat=3)
    with pytest.raises(Refused, match="format 3; jobs run format 4"):
        prepare_notebook("x.ipynb", {}, here)
    notebook(here.cwd / "x.ipynb", kernel="julia")
    with pytest.raises(Refused, match="There is no kernel 'julia'"):
        prepare_notebook("x.ipynb", {}, here)


# -- functions ---------------------------------------------------------------------------------------


def test_a_function_takes_the_local_modules_it_uses(here, tmp_path, monkeypatch):
    library = tmp_path / "library"
    library.mkdir()
    (library / "pool_test_far.py").write_text("import pool_test_farther\nclass Far: pass\n")
    (library / "pool_test_farther.py").write_text("")
    (here.cwd / "pool_test_near.py").write_text("")
    monkeypatch.syspath_prepend(str(library))
    namespace = {"__name__": "__main__"}
    exec(
        "import json, pool_test_far\n"
        "def helper():\n    return pool_test_far.Far()\n"
        "def train(x):\n    import pool_test_near\n    return json.dumps(x), helper()\n",
        namespace,
    )
    prepared = prepare_function(namespace["train"], (1,), {}, {}, here)
    assert prepared.snapshot.own_files == ("pool_test_far.py", "pool_test_farther.py", "pool_test_near.py")
    assert prepared.body["entry"] == {"name": "train"}
    assert prepared.taken.startswith("the function train and 3 local modules (")


def test_what_a_function_cannot_take_along_is_named(here):
    lock = threading.Lock()

    def closes_over():
        return lock

    def takes(*args, **kwargs):
        return None

    with pytest.raises(
        Refused, match=r"^The variable 'lock' that 'closes_over' uses \(a lock\) cannot be pickled"
    ):
        prepare_function(closes_over, (), {}, {}, here)
    with pytest.raises(Refused, match=r"^Argument 2 of 'takes' \(a lock\) cannot be pickled"):
        prepare_function(takes, (1, lock), {}, {}, here)
    with pytest.raises(Refused, match=r"^The argument 'key' of 'takes' \(a lock\) cannot be pickled"):
        prepare_function(takes, (), {"key": lock}, {}, here)


def test_functions_need_cloudpickle_on_both_sides(here, monkeypatch):
    monkeypatch.setattr(interpreter, "ask", lambda python, kernel=None: PLAIN)
    with pytest.raises(Refused, match="/plain/python has no cloudpickle"):
        prepare_function(len, (), {}, {}, here)
    monkeypatch.setattr(payload.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Refused, match="which this Python does not have"):
        payload.pickle_call(len, (), {})


# -- interpreters ------------------------------------------------------------------------------------


def test_an_interpreter_says_what_it_is(bare_python):
    found = ask(bare_python)
    version = subprocess.run(
        [bare_python, "-c", "import sys; print(sys.version.split()[0])"], capture_output=True
    )
    assert found.version == version.stdout.decode().strip()
    assert len(found.packages) == 64
    assert "cloudpickle" not in found.modules
    assert "cloudpickle" in ask(sys.executable).modules


def test_an_answer_is_kept_until_a_package_changes(tmp_path, monkeypatch):
    asked = []
    real = interpreter._ask
    monkeypatch.setattr(interpreter, "_ask", lambda path: asked.append(path) or real(path))
    monkeypatch.setattr(interpreter, "_answers", {})
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    first = ask(python)
    assert ask(python) == first
    assert len(asked) == 1
    (site,) = tmp_path.glob("venv/lib/python*/site-packages")
    (site / "thing-1.0.dist-info").mkdir()
    os.utime(site, (1, 1))
    assert ask(python).packages != first.packages
    assert len(asked) == 2


def test_what_is_no_python_is_refused(here, tmp_path):
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\necho hello\n")
    other.chmod(0o755)
    plain = tmp_path / "plain"
    plain.write_text("")
    old = tmp_path / "old"
    answer = json.dumps({"version": "3.6.15", "packages": "0", "modules": [], "folders": {}})
    old.write_text(f"#!/bin/sh\necho '{answer}'\n")
    old.chmod(0o755)
    for path, problem in [
        (other, "gave no answer that a Python would give"),
        (plain, "cannot be executed"),
        (tmp_path / "missing", "there is no such file"),
        (old, r"is Python 3\.6\.15; jobs need 3\.9 or newer"),
    ]:
        with pytest.raises(Refused, match=problem):
            choose(python=str(path), environ=here.environ, cwd=here.cwd)


def test_how_an_interpreter_is_chosen(here):
    assert choose(environ=here.environ, cwd=here.cwd).python == sys.executable
    (here.cwd / "python").symlink_to(sys.executable)
    assert choose(python="./python", environ=here.environ, cwd=here.cwd).python == str(here.cwd / "python")
    with pytest.raises(Refused, match="not both"):
        choose(python="a", kernel="b", environ=here.environ, cwd=here.cwd)


def kernel(folder, name, spec):
    path = folder / "kernels" / name
    path.mkdir(parents=True)
    (path / "kernel.json").write_text(spec if isinstance(spec, str) else json.dumps(spec))


def test_kernels_are_found_as_jupyter_finds_them(tmp_path):
    kernel(tmp_path / "first", "mine", {"argv": ["/first/python"], "language": "python"})
    kernel(tmp_path / "data" / "jupyter", "mine", {"argv": ["/second/python"]})
    kernel(tmp_path / "data" / "jupyter", "bare", {"argv": ["python3"]})
    kernel(tmp_path / "data" / "jupyter", "r", {"argv": ["R"], "language": "R"})
    kernel(tmp_path / "data" / "jupyter", "bad", "{")
    environ = {"JUPYTER_PATH": str(tmp_path / "first"), "XDG_DATA_HOME": str(tmp_path / "data")}
    assert {"mine", "bare", "r", "bad"} <= set(kernels(environ))
    assert kernel_python("mine", environ) == "/first/python"
    assert kernel_python("bare", environ) == sys.executable
    assert kernel_python("python3", {**environ, "XDG_DATA_HOME": "/nowhere"})
    with pytest.raises(Refused, match="runs r, not Python"):
        kernel_python("r", environ)
    with pytest.raises(Refused, match="cannot be read"):
        kernel_python("bad", environ)
    with pytest.raises(Refused, match=r"There is no kernel 'nope'\. Kernels found: .*bare"):
        kernel_python("nope", environ)
    own = {"JUPYTER_DATA_DIR": str(tmp_path / "data" / "jupyter")}
    assert kernels(own)["mine"] == Path(tmp_path / "data" / "jupyter" / "kernels" / "mine")
