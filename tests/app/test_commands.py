"""What each command asks of the service and says of its answer, over a service that answers as told."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_gpupool.app import COMMANDS
from jupyter_gpupool.client.home import Home
from tests.app.conftest import Said
from tests.faces import samples
from tests.faces.fake import FakeService, refusal
from tests.faces.unix import Answer

Shell = Callable[..., Said]
APP = "jupyter gpupool"
LOG = {"X-Gpupool-Offset": "0", "X-Gpupool-Ended": "true"}


@pytest.mark.parametrize("line", samples.LOOKS)
def test_a_question_shows_its_answer_as_text_and_as_json(shell: Shell, fake: FakeService, line: str) -> None:
    key, reply, text = samples.LOOKS[line]
    fake.answers[key] = (200, reply)
    assert text in shell(*line.split()).out
    said = shell(*line.split(), "--json")
    assert (said.code, said.err) == (0, "")
    several = line.split()[0] in ("cancel", "hold", "release", "requeue")
    assert said.json == ({"jobs": [reply]} if several else reply)


def test_several_jobs_are_cancelled_at_once(shell: Shell, fake: FakeService) -> None:
    for number in (7, 8):
        fake.answers[f"POST jobs/{number}/cancel"] = (200, samples.ended("cancelled", id=number))
    assert [job["id"] for job in shell("cancel", "7", "#8", "--json").json["jobs"]] == [7, 8]


def test_last_is_the_job_submitted_last(shell: Shell, fake: FakeService) -> None:
    fake.answers["GET jobs?limit=1"] = (200, {"jobs": [samples.job(id=42)]})
    fake.answers["GET jobs/42"] = (200, samples.job(id=42))
    assert shell("show", "last", "--json").json["id"] == 42


def test_last_without_any_job_is_one_sentence(shell: Shell, fake: FakeService) -> None:
    fake.answers["GET jobs"] = (200, {"jobs": []})
    assert shell("why", "last") == (1, "", "You have no job yet. Submit one: gpupool submit train.py\n")


def test_a_refusal_of_the_service_is_its_sentence_with_the_hint(shell: Shell, fake: FakeService) -> None:
    fake.answers["GET jobs/7"] = (404, refusal("not_found", "There is no job 7.", hint="Look at jobs."))
    assert shell("show", "7") == (1, "", "There is no job 7. Look at jobs.\n")
    assert shell("show", "7", "--json").json == refusal(
        "not_found", "There is no job 7.", hint="Look at jobs."
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["sumbit"],
            f"{APP} has no command 'sumbit'. Did you mean submit? {APP} --help lists them.",
        ),
        (["show"], "jupyter gpupool show: ID is missing."),
        (["show", "x"], "jupyter gpupool show: 'x' is not a job's number, such as 17 or 12[3], nor last."),
        (["quota", "--jsno"], "jupyter gpupool quota: there is no option --jsno. Did you mean --json?"),
        (["logs", "7", "--tail", "x"], "jupyter gpupool logs: --tail 'x' is not a whole number."),
        (["submit", "--gpus", "1"], "There is nothing to submit. Name a FILE, or a command: -- COMMAND ARG"),
        (["submit", "--"], "There is nothing to submit. Name a FILE, or a command: -- COMMAND ARG"),
        (
            ["submit", "--python", "/usr/bin/python3", "--", "make"],
            "A command names its own program: leave --python out, or submit a script.",
        ),
        (["run", "--gpus", "1"], "There is no command to run. Write: run --gpus 1 -- python train.py"),
        (
            ["policy", "chekc"],
            f"{APP} policy: 'chekc' is not one of: 'check', 'show', 'diff', 'apply', 'history', 'rollback'.",
        ),
        (["policy", "check"], "policy check: name the policy file."),
        (["config", "always-send", "A-B"], "'A-B' is not the name of an environment variable."),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    shell: Shell, fake: FakeService, words: list[str], sentence: str
) -> None:
    assert shell(*words) == (2, "", f"{sentence}\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(shell: Shell, name: str) -> None:
    said = shell(name, "--help")
    assert said.code == 0
    assert said.out.startswith(f"usage: jupyter gpupool {name} ")
    assert "--json" in said.out


def test_help_lists_every_command(shell: Shell) -> None:
    lines = shell("--help").out.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("  ")] == list(COMMANDS)


# -- submit ----------------------------------------------------------------------------------------


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text("print('hello')\n")
    return path


@pytest.fixture
def accepting(fake: FakeService) -> FakeService:
    fake.answers["POST jobs"] = (201, samples.job())
    fake.answers["POST jobs?dry_run=true"] = (200, samples.DRY_RUN)
    return fake


def test_submit_prints_the_receipt_of_three_lines(shell: Shell, accepting: FakeService, script: Path) -> None:
    said = shell("submit", "--gpus", "1", "train.py", "--lr", "0.1")
    lines = said.out.splitlines()
    assert (said.code, len(lines)) == (0, 3)
    assert lines[0].startswith("Job 7 took train.py")
    assert lines[1].startswith("Held back:")
    assert lines[2] == "Output goes to /pool/jobs/7/out, the log to /pool/jobs/7/1/log."
    (body,) = accepting.sent("POST jobs")
    assert body["entry"] == {"script": "train.py", "args": ["--lr", "0.1"]}
    assert body["resources"] == {"gpus": "1"}
    assert any(key.startswith("PUT snapshots/") for key, _ in accepting.asked)


def test_a_dry_run_says_when_and_submits_nothing(shell: Shell, accepting: FakeService, script: Path) -> None:
    said = shell("submit", "train.py", "--dry-run")
    assert "Nothing was submitted." in said.out
    assert "high" in said.out
    assert accepting.sent("POST jobs") == []
    assert shell("submit", "train.py", "--dry-run", "--json").json == samples.DRY_RUN


@pytest.mark.parametrize(
    ("job", "code"),
    [
        (samples.ended(), 0),
        (samples.ended("failed", exit_code=3), 3),
        (samples.ended("timed_out", exit_code=None, signal=9), 1),
        (samples.ended("cancelled", exit_code=None), 1),
    ],
)
def test_submit_and_wait_end_with_the_jobs_exit_code(
    shell: Shell, accepting: FakeService, script: Path, job: dict[str, object], code: int
) -> None:
    accepting.answers["GET jobs/7"] = (200, job)
    assert shell("submit", "train.py", "--wait").code == code
    assert shell("wait", "7").code == code
    assert shell("wait", "7", "--json").json == {"jobs": [job]}


def test_a_missing_script_is_one_sentence_and_nothing_is_sent(
    shell: Shell, accepting: FakeService, script: Path
) -> None:
    said = shell("submit", "trian.py")
    assert said.code == 1
    assert said.err == f"There is no file {script.parent / 'trian.py'}.\n"
    assert accepting.asked == []


def test_a_notebook_takes_parameters_not_arguments(
    shell: Shell, accepting: FakeService, script: Path
) -> None:
    said = shell("submit", "report.ipynb", "x")
    assert said == (2, "", "'x': a notebook takes no arguments. Give it parameters with -p name=value.\n")


# -- logs and results ------------------------------------------------------------------------------


def serve_log(fake: FakeService, text: bytes) -> None:
    """Let the service have a log, offsets and all."""

    def answer(path: str) -> Answer:
        offset = int(path.partition("offset=")[2].split("&")[0] or 0)
        start = max(0, len(text) + offset) if offset < 0 else offset
        return Answer(text[start:], headers={**LOG, "X-Gpupool-Offset": str(max(start, len(text)))})

    original = fake.answer
    fake.answer = lambda call: (  # type: ignore[method-assign]
        answer(call.path) if "/logs" in call.path else original(call)
    )


def test_logs_print_the_whole_log_or_its_last_lines(shell: Shell, fake: FakeService) -> None:
    serve_log(fake, "one\ntwo\nthrée\n".encode())
    assert shell("logs", "7").out == "one\ntwo\nthrée\n"
    assert shell("logs", "7", "--tail", "2").out == "two\nthrée\n"
    assert shell("logs", "7", "--tail", "0").out == ""
    assert shell("logs", "7", "--json").json == {"job": 7, "text": "one\ntwo\nthrée\n"}


def test_logs_that_follow_end_with_the_job(shell: Shell, fake: FakeService) -> None:
    fake.answers["GET jobs/7"] = (200, samples.ended())
    serve_log(fake, b"one\ntwo\n")
    assert shell("logs", "-f", "7").out == "one\ntwo\n"
    lines = shell("logs", "-f", "7", "--json").out.splitlines()
    assert "".join(json.loads(line)["text"] for line in lines) == "one\ntwo\n"


def test_fetch_copies_files_and_overwrites_nothing(shell: Shell, fake: FakeService, tmp_path: Path) -> None:
    names = ["result.json", "same.txt", "result.pkl"]
    fake.answers["GET jobs/7"] = (200, samples.ended())
    fake.answers["GET jobs/7/artifacts"] = (200, {"artifacts": [{"name": name, "size": 1} for name in names]})
    fake.answers["GET jobs/7/artifacts/result.json"] = (200, b"new")
    fake.answers["GET jobs/7/artifacts/same.txt"] = (200, b"same")
    (tmp_path / "result.json").write_text("mine")
    (tmp_path / "same.txt").write_text("same")
    said = shell("fetch", "7", str(tmp_path), "--json")
    assert said.json["files"] == [str(tmp_path / "result-7.json"), str(tmp_path / "same.txt")]
    assert (tmp_path / "result.json").read_text() == "mine"
    assert (tmp_path / "result-7.json").read_text() == "new"
    assert not (tmp_path / "result.pkl").exists()


# -- policy, settings ------------------------------------------------------------------------------


def test_policy_commands_speak_of_the_policy_in_force(
    shell: Shell, fake: FakeService, tmp_path: Path
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("groups: {}\n")
    moved = "The promise to 7 in a moves from 14:00 to 16:00."
    change = {"applied": False, "diff": ["groups.a: new"], "over_quota": [], "promises": [moved]}
    change["inactive"] = ["x is not active"]
    past = [{"name": name, "since": "2026-11-30T10:00:00Z", "text": name} for name in ("two", "one")]
    policy = {"text": "groups: {}\n", "source": "policy.yaml", "error": None, "inactive": [], "warnings": []}
    fake.answers["GET whoami"] = (200, samples.WHOAMI)
    fake.answers["POST policy"] = (200, {**change, "warnings": ["oversubscribed"]})
    fake.answers["GET policy"] = (200, {**policy, "history": past})
    assert shell("policy", "check", str(file)).out.splitlines()[1:] == ["x is not active", "oversubscribed"]
    assert shell("policy", "diff", str(file)).out == f"groups.a: new\n{moved}\n"
    assert shell("policy", "show").out.endswith("groups: {}\n")
    assert shell("policy", "apply", str(file)).out.startswith("In force now.\n")
    assert "two" in shell("policy", "history").out
    for words in (["check", str(file)], ["show"], ["diff", str(file)], ["apply", str(file)], ["history"]):
        assert shell("policy", *words, "--json").json
    shell("policy", "rollback")
    shell("policy", "rollback", "two")
    assert [body["text"] for body in fake.sent("POST policy")][-2:] == ["one", "two"]
    assert shell("policy", "rollback", "three").err.startswith("The history has no policy three.")


def test_a_policy_is_checked_without_a_service(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("groups:\n\tvision: {}\n")
    said = shell("policy", "check", str(file))
    assert said.code == 1
    assert "policy.yaml:2" in said.err


def test_what_is_always_sent_is_kept_in_ones_own_settings(shell: Shell) -> None:
    assert shell("config", "always-send").out == "Always sent to jobs: nothing.\n"
    assert shell("config", "always-send", "HF_TOKEN", "--json").json == {"always_send": ["HF_TOKEN"]}
    assert shell("config", "always-send", "--not", "HF_TOKEN").out == "Always sent to jobs: nothing.\n"


def test_of_what_jobs_tell_that_do_not_say(shell: Shell, fake: FakeService, tmp_path: Path) -> None:
    assert shell("config", "notify").out == "Jobs tell you what your site's policy says.\n"
    shell("config", "always-send", "HF_TOKEN")
    assert shell("config", "notify", "fail,stop").out == "Jobs tell you of: fail, stop.\n"
    assert shell("config", "always-send", "--json").json == {"always_send": ["HF_TOKEN"]}
    (tmp_path / "t.py").write_text("")
    fake.answers["POST jobs"] = (201, samples.job())
    shell("submit", str(tmp_path / "t.py"))
    shell("submit", str(tmp_path / "t.py"), "--notify", "end")
    assert [body["notify"] for body in fake.sent("POST jobs")] == [["fail", "stop"], ["end"]]
    assert shell("config", "notify", "none").out == "Jobs tell you of nothing.\n"
    shell("submit", str(tmp_path / "t.py"))
    assert fake.sent("POST jobs")[-1]["notify"] == ["none"]
    assert shell("config", "notify", "none,end").code == 2
    assert shell("config", "notify", "default", "--json").json == {"notify": []}
    refused = shell("config", "notify", "never")
    assert (refused.code, "Choose of: end, fail, start, stop, none; or default." in refused.err) == (2, True)


def test_the_doctor_names_what_is_missing(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUPOOL_SIMULATE", "1x2x8GiB")
    said = shell("doctor", "--json")
    found = {finding["subject"]: finding for finding in said.json["findings"]}
    assert list(found) == [
        "python",
        "system",
        "home",
        "file system",
        "survival",
        "cards",
        "policy",
        "service",
    ]
    assert found["cards"]["verdict"] == "ok"
    assert found["service"]["sentence"] == "not running; it starts by itself when it is needed."
    monkeypatch.setenv("GPUPOOL_SIMULATE", "1x2x8")
    said = shell("doctor")
    assert said.code == 1
    assert "problem  cards" in said.out


def test_the_doctor_in_a_hubs_session_checks_the_way_to_the_hubs_pool(
    shell: Shell, fake: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUPOOL_HUB_URL", fake.url)
    monkeypatch.setenv("GPUPOOL_LEASE_ID", "7")
    monkeypatch.setenv("GPUPOOL_GPUS", "GPU-a")
    monkeypatch.setenv("GPUPOOL_GPU_MEMORY_MIB", "4096")
    fake.answers["GET whoami"] = (200, samples.WHOAMI)
    found = {finding["subject"]: finding for finding in shell("doctor", "--json").json["findings"]}
    assert list(found) == ["python", "system", "pool", "session"]
    assert found["pool"]["sentence"].endswith("simulated as 1x2x8GiB; you are ada (vision).")
    assert found["session"]["sentence"] == "it holds 4 GiB of GPU-a."
    monkeypatch.delenv("GPUPOOL_GPU_MEMORY_MIB")
    assert "it holds no GPU" in shell("doctor").out
    fake.end()
    down = shell("doctor")
    assert down.code == 1
    assert "problem  pool" in down.out


def test_status_and_stop_start_no_service(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GPUPOOL_HOME", str(tmp_path / "home"))
    assert shell("status", "--json").json["running"] is False
    assert shell("stop", "--json").json == {"stopped": False}
    assert not (tmp_path / "home").exists()


def test_status_of_a_hubs_pool_names_its_address_and_only_its_administrator_stops_it(
    shell: Shell, fake: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{fake.url}?uid={os.geteuid()}"
    monkeypatch.setenv("GPUPOOL_URL", url)
    fake.answers["GET whoami"] = (200, samples.WHOAMI)
    fake.answers["GET pool"] = (200, samples.POOL)
    fake.answers["GET queue"] = (200, {"waiting": [], "running": []})
    fake.answers["GET /services/gpupool/health"] = (200, {"status": "ok", "version": "0.1.0"})
    assert shell("status").out.startswith(f"Running: version {samples.WHOAMI['version']}, at {url}.\n")
    refused = shell("stop")
    assert (refused.code, refused.err) == (
        1,
        f"Your Hub's administrator runs the pool at {url}, and can stop it.\n",
    )
    fake.end()
    for word in ("status", "jobs"):
        down = shell(word)
        assert (down.code, down.err.count("\n")) == (1, 1)
        assert "does not answer" in down.err


def test_status_tells_what_troubles_the_service(shell: Shell, fake: FakeService) -> None:
    fake.answers |= {
        "GET whoami": (200, samples.WHOAMI),
        "GET pool": (200, samples.POOL),
        "GET queue": (200, {"waiting": [], "running": [samples.running()]}),
        "GET /services/gpupool/health": (200, {"troubles": ["The disk is full."]}),
    }
    *_, jobs, trouble = shell("status").out.splitlines()
    assert jobs == "1 running, 0 waiting."
    assert trouble == "Trouble: The disk is full."
    assert shell("status", "--json").json["troubles"] == ["The disk is full."]


def test_the_doctor_looks_at_the_cards_of_the_running_service(shell: Shell) -> None:
    home = Home.of(os.environ)
    home.make()
    home.service_record.write_text(json.dumps({"pid": 1, "version": "0", "pool": "1x2x8GiB"}))
    cards = next(found for found in shell("doctor", "--json").json["findings"] if found["subject"] == "cards")
    assert cards["verdict"] == "ok"
    assert "1x2x8GiB" in cards["sentence"]


def test_a_command_that_its_lease_ended_with_says_why(shell: Shell, fake: FakeService) -> None:
    fake.answers["POST leases"] = (201, samples.lease())
    fake.answers["GET leases/3"] = (200, samples.lease(state="free", reason="Its time is over."))
    fake.answers["DELETE leases/3"] = (200, samples.lease(state="free"))
    said = shell("run", "--gpus", "1", "--", "sh", "-c", "kill -TERM $$")
    assert (said.code, said.err.splitlines()[-1]) == (143, "Its time is over.")
    said = shell("run", "--gpus", "1", "--", "true")
    assert (said.code, "over" in said.err) == (0, False)
