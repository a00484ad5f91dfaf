"""The magics over a service that answers as told."""

from __future__ import annotations

import os
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from IPython.core.completer import provisionalcompleter

import jupyter_gpupool
from jupyter_gpupool.notebook import completion, magics
from tests.faces import samples
from tests.faces.fake import FakeService, refusal
from tests.notebook.conftest import Notebook


@pytest.mark.parametrize("line", samples.LOOKS)
def test_a_question_shows_its_answer_as_text_and_html(
    notebook: Notebook, fake: FakeService, line: str
) -> None:
    key, reply, text = samples.LOOKS[line]
    fake.answers[key] = (200, reply)
    shown = notebook.display(f"%gpupool {line}")
    assert text in shown["text/plain"]
    assert shown["text/html"].startswith("<")


def test_the_bare_magic_is_an_overview(notebook: Notebook, fake: FakeService) -> None:
    fake.answers["GET whoami"] = (200, samples.WHOAMI)
    fake.answers["GET quota"] = (200, samples.QUOTA)
    fake.answers["GET queue"] = (200, {"waiting": [samples.job()], "running": []})
    shown = notebook.display("%gpupool")
    assert "You are ada (vision)" in shown["text/plain"]
    assert "train.py" in shown["text/html"]


def test_json_returns_the_answer_as_a_dict(notebook: Notebook, fake: FakeService) -> None:
    fake.answers["GET quota"] = (200, samples.QUOTA)
    assert notebook.run("found = %gpupool quota --json\nfound['user']").value == "ada"


@pytest.mark.parametrize(
    ("cell", "sentence"),
    [
        (
            "%gpupool sumbit",
            "%gpupool has no command 'sumbit'. Did you mean submit? %gpupool --help lists them.",
        ),
        ("%gpupool show", "%gpupool show: ID is missing."),
        ("%gpupool show x", "%gpupool show: 'x' is not a job's number, such as 17 or 12[3], nor last."),
        ("%gpupool jobs --sate x", "%gpupool jobs: there is no option --sate. Did you mean --state?"),
        ("%gpupool submit 'x", "The line cannot be read: no closing quotation."),
        ("%gpupool submit nothing.py", "There is no file {here}/nothing.py."),
        (
            "%%gpupool submit --gpuss 1\n1",
            "%%gpupool submit: there is no option --gpuss. Did you mean --gpus?",
        ),
        ("%%gpupool submit x.py\n1", "%%gpupool submit: 'x.py' is one argument too many."),
        ("%%gpupool queue\n1", "A cell can only be submitted. Write %%gpupool submit on top."),
        ("%%gpupool submit --send nowhere\n1", "--send nowhere: there is no variable 'nowhere' here."),
        ("%%gpupool submit\nif", "Line 1 of the cell is not valid Python: invalid syntax."),
        ("%gpupool why 9", "There is no job 9."),
    ],
)
def test_a_mistake_is_one_sentence_without_a_traceback(
    notebook: Notebook, fake: FakeService, tmp_path: Path, cell: str, sentence: str
) -> None:
    fake.answers["GET jobs/9"] = (404, refusal("not_found", "There is no job 9."))
    ran = notebook.run(cell)
    assert isinstance(ran.error, magics.NotDone)
    assert ran.out.strip() == str(ran.error) == sentence.format(here=tmp_path)


def test_a_variable_that_cannot_be_pickled_is_named(notebook: Notebook, fake: FakeService) -> None:
    ran = notebook.run("import threading\nlock = threading.Lock()\n")
    ran = notebook.run("%%gpupool submit --send lock\n1")
    assert "'lock'" in str(ran.error)
    assert fake.asked == []


def test_help_is_shown_and_nothing_is_raised(notebook: Notebook) -> None:
    ran = notebook.run("%gpupool --help")
    assert ran.error is None
    assert "%gpupool give-back" in ran.out
    ran = notebook.run("%gpupool submit --help")
    assert ran.error is None
    assert "--gpu-memory SIZE" in ran.out


def test_unloading_takes_the_magic_away(notebook: Notebook) -> None:
    jupyter_gpupool.unload_ipython_extension(notebook.shell)
    assert "not found" in notebook.run("%gpupool").out


# -- submit ----------------------------------------------------------------------------------------


@pytest.fixture
def accepting(fake: FakeService) -> FakeService:
    """Accept every snapshot and every job."""
    fake.answers["POST jobs"] = (201, samples.job())
    fake.answers["POST jobs?dry_run=true"] = (200, samples.DRY_RUN)
    fake.answers["GET jobs/7"] = (200, samples.ended())
    return fake


def test_a_script_is_submitted_with_its_arguments(
    notebook: Notebook, accepting: FakeService, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    ran = notebook.run("job = %gpupool submit train.py --gpus 1 -- --lr 0.1\njob.id")
    assert ran.value == 7
    assert [line.split()[0] for line in ran.out.splitlines()][:3] == ["Job", "Held", "Output"]
    (body,) = accepting.sent("POST jobs")
    assert body["kind"] == "script"
    assert body["entry"] == {"script": "train.py", "args": ["--lr", "0.1"]}


def test_a_command_is_submitted_as_it_stands(notebook: Notebook, accepting: FakeService) -> None:
    ran = notebook.run("job = %gpupool submit --gpus 1 -- make -j 'all of it'")
    assert ran.out.startswith("Job 7 took the command make, ")
    (body,) = accepting.sent("POST jobs")
    assert (body["kind"], body["entry"]) == ("command", {"argv": ["make", "-j", "all of it"]})
    assert (body["snapshot"], body["workdir"]) == (None, os.getcwd())


def test_a_cell_is_submitted_with_variables(notebook: Notebook, accepting: FakeService) -> None:
    notebook.run("x = 1")
    ran = notebook.run("%%gpupool submit --send x --fetch y --gpu-memory 4GiB\ny = x + 1")
    assert ran.out.startswith("Job 7 took the cell with x")
    assert ran.value.id == 7
    (body,) = accepting.sent("POST jobs")
    assert body["entry"] == {"fetch": ["y"], "sent": True, "ipython": False}
    assert body["resources"] == {"gpu_memory": "4GiB"}


def test_python_variables_are_put_into_the_line(notebook: Notebook, accepting: FakeService) -> None:
    notebook.run("limit = '2h'")
    notebook.run("%%gpupool submit --time {limit}\n1")
    assert accepting.sent("POST jobs")[0]["time"] == "2h"


def test_a_dry_run_shows_when_and_submits_nothing(notebook: Notebook, accepting: FakeService) -> None:
    shown = notebook.run("%%gpupool submit --dry-run\n1").value._repr_mimebundle_()
    assert "Nothing was submitted." in shown["text/plain"]
    assert "high" in shown["text/html"]
    assert accepting.sent("POST jobs") == []


def test_submit_and_wait_tells_of_a_failure(notebook: Notebook, accepting: FakeService) -> None:
    assert notebook.run("%%gpupool submit --wait\n1").error is None
    accepting.answers["GET jobs/7"] = (200, samples.ended("failed"))
    ran = notebook.run("%%gpupool submit --wait\n1")
    assert str(ran.error) == "Job 7 has failed. %gpupool why 7 says more."


# -- staying with a job, and leaving it --------------------------------------------------------------


def interrupt_after(reached: Callable[[], bool]) -> None:
    """Press Interrupt once, as soon as something is reached."""

    def press() -> None:
        while not reached():
            time.sleep(0.01)
        os.kill(os.getpid(), 2)

    threading.Thread(target=press, daemon=True).start()


def test_interrupt_ends_the_wait_and_not_the_job(notebook: Notebook, fake: FakeService) -> None:
    fake.answers["GET jobs/7"] = (200, samples.running())
    interrupt_after(lambda: any(key == "GET jobs/7" for key, _ in fake.asked))
    ran = notebook.run("%gpupool wait 7")
    assert ran.error is None
    assert ran.out.splitlines()[-1] == "(no longer waiting; what was submitted goes on)"
    assert not any(key.startswith("POST") for key, _ in fake.asked)


def test_fetch_puts_variables_into_the_namespace_and_returns_a_result(
    notebook: Notebook, fake: FakeService
) -> None:
    import pickle

    fake.answers["GET jobs/7"] = (200, samples.ended(kind="cell"))
    fake.answers["GET jobs/7/artifacts"] = (200, {"artifacts": [{"name": "fetched.pkl"}, {"name": "a.txt"}]})
    fake.answers["GET jobs/7/artifacts/fetched.pkl"] = (200, pickle.dumps({"total": 42}))
    fake.answers["GET jobs/7/artifacts/a.txt"] = (200, b"text")
    ran = notebook.run("%gpupool fetch 7\ntotal")
    assert ran.value == 42
    assert ran.out.startswith("Copied a.txt.\nSet total.\n")
    fake.answers["GET jobs/7"] = (200, samples.ended(kind="function"))
    fake.answers["GET jobs/7/artifacts"] = (200, {"artifacts": [{"name": "result.pkl"}]})
    fake.answers["GET jobs/7/artifacts/result.pkl"] = (200, pickle.dumps(3.5))
    assert notebook.run("%gpupool fetch 7").value == 3.5


# -- this kernel's own lease -------------------------------------------------------------------------


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "before")
    monkeypatch.delenv("GPUPOOL_GPUS", raising=False)


@pytest.mark.usefixtures("clean_environment")
def test_acquire_sets_the_environment_and_give_back_restores_it(
    notebook: Notebook, fake: FakeService
) -> None:
    fake.answers["POST leases"] = (201, samples.lease())
    fake.answers["DELETE leases/3"] = (200, {"ok": True})
    ran = notebook.run("%gpupool acquire --gpus 1 --time 1h")
    assert "Lease 3" in ran.out
    assert (os.environ["CUDA_VISIBLE_DEVICES"], os.environ["GPUPOOL_GPUS"]) == ("", "SIM-node1-0")
    (body,) = fake.sent("POST leases")
    assert body == {"gpus": "1", "time": "1h", "pid": os.getpid(), "name": "kernel", "wait": True}
    assert notebook.run("%gpupool give-back").out == "Gave back lease 3.\n"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "before"
    assert "GPUPOOL_GPUS" not in os.environ
    assert notebook.run("%gpupool give-back").out == "This kernel holds nothing.\n"


@pytest.mark.usefixtures("clean_environment")
def test_acquire_given_up_leaves_no_request_behind(notebook: Notebook, fake: FakeService) -> None:
    waiting = samples.lease(state="requested", waiting=samples.WAITING, placement=None, environment={})
    fake.answers["POST leases"] = (202, waiting)
    fake.answers["GET leases/3"] = (200, waiting)
    fake.answers["DELETE leases/3"] = (200, {"ok": True})
    interrupt_after(lambda: any(key == "POST leases" for key, _ in fake.asked))
    ran = notebook.run("%gpupool acquire --gpus 1")
    assert ran.error is None
    assert "higher rank" in ran.out
    assert "(given up; nothing is held)" in ran.out
    assert fake.sent("DELETE leases/3")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "before"


@pytest.mark.usefixtures("clean_environment")
def test_acquire_warns_when_a_library_already_uses_devices(
    notebook: Notebook, fake: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.answers["POST leases"] = (201, samples.lease())
    started: Any = types.ModuleType("torch")
    started.cuda = types.SimpleNamespace(is_initialized=lambda: True)
    monkeypatch.setitem(__import__("sys").modules, "torch", started)
    assert "torch already uses devices" in notebook.run("%gpupool acquire").out
    started.cuda.is_initialized = lambda: False
    assert "already" not in notebook.run("%gpupool acquire").out


# -- completion ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "symbol", "expected"),
    [
        ("%gpupool ", "", "give-back"),
        ("%gpupool ca", "ca", "cancel"),
        ("%gpupool submit --gp", "--gp", "--gpu-memory"),
        ("%gpupool submit tr", "tr", "train.py"),
        ("%gpupool why ", "", "last"),
    ],
)
def test_what_may_follow_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, symbol: str, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    event = types.SimpleNamespace(line=line, symbol=symbol)
    assert expected in completion.complete(None, event)


def test_the_shell_completes_by_it(notebook: Notebook) -> None:
    with provisionalcompleter():
        found = [each.text for each in notebook.shell.Completer.completions("%gpupool ca", 11)]
    assert "cancel" in found
