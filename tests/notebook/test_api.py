"""`submit` and `Job` over a service that answers as told."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import jupyter_gpupool as gpupool
from jupyter_gpupool.client.errors import PoolError
from tests.faces import samples
from tests.faces.fake import FakeService, refusal


@pytest.fixture
def accepting(fake: FakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeService:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print(1)")
    fake.answers["POST jobs"] = (201, samples.job())
    return fake


def test_a_script_is_submitted_with_options_by_name(accepting: FakeService) -> None:
    job = gpupool.submit("train.py", args=["--lr", 0.1], gpus=1, time="2h", window="night")
    assert job.id == 7
    (body,) = accepting.sent("POST jobs")
    assert body["entry"] == {"script": "train.py", "args": ["--lr", "0.1"]}
    assert (body["resources"], body["time"], body["window"]) == ({"gpus": "1"}, "2h", "night")


def test_a_function_is_submitted_with_its_arguments(accepting: FakeService) -> None:
    gpupool.submit(sum, [1, 2], gpus=0)
    (body,) = accepting.sent("POST jobs")
    assert (body["kind"], body["entry"], body["resources"]) == ("function", {"name": "sum"}, {"gpus": "0"})


@pytest.mark.parametrize(
    ("args", "request_", "sentence"),
    [
        (["train.py"], {"gpu": 1}, r"no option gpu\. Did you mean gpus\?"),
        (["train.py"], {"send": ["x"]}, r"--send is for a cell; this is a script\."),
        (["train.py"], {"kwargs": {"a": 1}}, r"kwargs=.* is for functions"),
        ([sum], {"args": [1]}, r"args=.* is for scripts"),
        ([7], {}, r"submit takes a path or a function, not a int\."),
        (["train.py"], {"gpus": [1]}, r"gpus must be text or a number"),
        (["missing.py"], {}, r"There is no file .*missing\.py\."),
    ],
)
def test_a_mistake_is_refused_and_nothing_is_sent(
    accepting: FakeService, args: list[object], request_: dict[str, object], sentence: str
) -> None:
    with pytest.raises(PoolError, match=sentence):
        gpupool.submit(*args, **request_)  # type: ignore[arg-type]
    assert accepting.sent("POST jobs") == []


def test_a_job_says_how_it_stands(fake: FakeService) -> None:
    fake.answers["GET jobs/7"] = (200, samples.running())
    job = gpupool.job(7)
    assert job.status == "running"
    assert repr(job).startswith("Job 7 (train.py): running, on node1: GPU 0, 25 %, loss 0.1235")
    shown = job._repr_mimebundle_()
    assert shown["text/plain"] == repr(job)
    assert "<progress" in shown["text/html"]
    assert set(shown) == {"text/plain", "text/html"}  # no widget outside a kernel
    assert "Running" not in job.why()


def test_a_job_says_its_state_once(fake: FakeService) -> None:
    fake.answers["GET jobs/7"] = (200, samples.running(state="starting"))
    assert repr(gpupool.job(7)).startswith("Job 7 (train.py): starting, on node1: GPU 0")
    fake.answers["GET jobs/7"] = (200, samples.job(waiting=None))
    assert repr(gpupool.job(7)) == "Job 7 (train.py): queued"
    fake.answers["GET jobs/7"] = (200, samples.job(waiting=None, name="\x1b[31mred"))
    assert repr(gpupool.job(7)) == "Job 7 (�[31mred): queued"


def test_a_job_can_be_shown_while_the_service_is_away(fake: FakeService) -> None:
    job = gpupool.Job(7)
    fake.answers["GET jobs/7"] = (503, refusal("unavailable", "The disk is full."))
    assert repr(job) == "Job 7 (The disk is full.)"
    assert job._repr_mimebundle_() == {"text/plain": repr(job)}


def test_wait_returns_the_state_and_why_reads_as_text(fake: FakeService) -> None:
    fake.answers["GET jobs/7"] = (200, samples.ended("failed", exit_code=3))
    job = gpupool.job(7)
    assert job.wait() == "failed"
    assert repr(job.why()) == str(job.why())
    assert "Finished with exit code 3." in job.why()


def test_wait_gives_up_after_its_timeout(fake: FakeService) -> None:
    fake.answers["GET jobs/7"] = (200, samples.running())
    with pytest.raises(TimeoutError):
        gpupool.job(7).wait(timeout=0)


def test_the_result_is_what_the_function_returned(fake: FakeService) -> None:
    fake.answers["GET jobs/7"] = (200, samples.ended(kind="function"))
    fake.answers["GET jobs/7/artifacts"] = (200, {"artifacts": [{"name": "result.pkl"}]})
    fake.answers["GET jobs/7/artifacts/result.pkl"] = (200, pickle.dumps({"accuracy": 0.9}))
    assert gpupool.job(7).result() == {"accuracy": 0.9}


@pytest.mark.parametrize(
    ("job", "sentence"),
    [
        (
            samples.ended("failed", kind="function", diagnosis={"kind": "exit_code", "summary": "Exit 3."}),
            r"Job 7 has no result\. Finished with exit code 3\.$",
        ),
        (samples.ended(kind="script"), r"A script has no result object; .*/pool/jobs/7/out\..*fetch"),
        (samples.ended(kind="cell"), r"Job 7 was submitted without --fetch"),
    ],
)
def test_where_there_is_no_result_the_reason_is_said(
    fake: FakeService, job: dict[str, object], sentence: str
) -> None:
    fake.answers["GET jobs/7"] = (200, job)
    fake.answers["GET jobs/7/artifacts"] = (200, {"artifacts": []})
    with pytest.raises(PoolError, match=sentence):
        gpupool.job(7).result()


def test_a_result_that_needs_a_missing_module_names_it(fake: FakeService) -> None:
    fake.answers["GET jobs/7"] = (200, samples.ended(kind="function"))
    fake.answers["GET jobs/7/artifacts"] = (200, {"artifacts": [{"name": "result.pkl"}]})
    fake.answers["GET jobs/7/artifacts/result.pkl"] = (200, b"cno_such_module\nThing\n.")
    with pytest.raises(PoolError, match="No module named 'no_such_module'"):
        gpupool.job(7).result()


def test_a_job_is_held_released_requeued_and_given_more_time(fake: FakeService) -> None:
    fake.answers["GET jobs/7"] = (200, samples.job())
    for verb in ("hold", "release", "requeue", "extend"):
        fake.answers[f"POST jobs/7/{verb}"] = (200, samples.job())
    job = gpupool.job(7)
    job.hold()
    job.release()
    job.requeue()
    job.extend("2h")
    assert [len(fake.sent(f"POST jobs/7/{verb}")) for verb in ("hold", "release", "requeue")] == [1, 1, 1]
    assert fake.sent("POST jobs/7/extend") == [{"time": "2h"}]


def test_a_job_that_is_not_there_is_refused(fake: FakeService) -> None:
    fake.answers["GET jobs/7"] = (404, refusal("not_found", "There is no job 7."))
    with pytest.raises(PoolError, match="There is no job 7"):
        gpupool.job(7)
