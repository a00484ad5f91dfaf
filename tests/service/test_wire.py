"""A body that does not fit is refused with one sentence."""

from __future__ import annotations

import pytest

from jupyter_gpupool.service.errors import ApiError
from jupyter_gpupool.service.wire import JobRequest, ScriptEntry, check, read

GOOD = b'{"kind": "command", "entry": {"argv": ["true"]}}'


def refusal(body: bytes) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(JobRequest, body)
    return caught.value


def test_what_is_left_out_has_its_default() -> None:
    job = read(JobRequest, GOOD)
    assert (job.workdir_mode, job.resumable, job.resources.gpus) == ("here", False, None)


@pytest.mark.parametrize(
    ("extra", "message", "hint"),
    [
        ('"priorty": "high"', "Unknown option priorty.", "Did you mean priority?"),
        (
            '"resources": {"gpu_memry": "1GiB"}',
            "Unknown option resources.gpu_memry.",
            "Did you mean gpu_memory?",
        ),
        ('"resources": {"zzz": 1}', "Unknown option resources.zzz.", "Known are gpus,"),
        ('"kind": "cel"', "kind is 'cel'; it can be 'script', 'cell'", None),
        ('"resumable": "yes"', "resumable does not fit", None),
        ('"workdir": "relative"', "workdir does not fit", None),
        ('"snapshot": "../../etc"', "snapshot does not fit", None),
        ('"environment": {"A": 1}', "environment.A does not fit", None),
        ('"resources": {"gpus": true}', "resources.gpus", None),
    ],
)
def test_a_mistake_is_named_in_one_sentence(extra: str, message: str, hint: str | None) -> None:
    error = refusal(GOOD[:-1] + b", " + extra.encode() + b"}")
    assert error.status == 422
    assert error.message.startswith(message)
    assert "\n" not in error.message
    assert error.hint is None if hint is None else (error.hint or "").startswith(hint)


@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b'"text"', b"\xff\xfe"])
def test_no_json_object(body: bytes) -> None:
    assert (refusal(body).status, refusal(body).code) == (400, "bad_json")


def test_missing() -> None:
    assert refusal(b'{"kind": "script"}').message == "entry is missing."


def test_an_entry_is_checked_by_its_kind() -> None:
    with pytest.raises(ApiError, match=r"Unknown option entry\.arg\."):
        check(ScriptEntry, {"script": "a.py", "arg": []}, within="entry")
