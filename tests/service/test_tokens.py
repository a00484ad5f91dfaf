"""The tokens of jobs: theirs alone, while they are live."""

from __future__ import annotations

import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpupool.ledger.records import JobState
from jupyter_gpupool.service.tokens import JobTokens, secret_in

SECRET = b"s" * 32


def job(attempt: int = 2, state: JobState = JobState.RUNNING) -> Any:
    return SimpleNamespace(attempt=attempt, state=state)


def tokens(secret: bytes = SECRET, **jobs: Any) -> JobTokens:
    return JobTokens(secret, {int(name.strip("_")): found for name, found in jobs.items()})


def test_a_token_speaks_for_its_attempt() -> None:
    found = tokens(_7=job())
    token = found.mint(7, 2)
    assert token.startswith("gpj_")
    assert found.check(token) == (7, 2)
    assert found.mint(7, 2) == token
    assert tokens(_7=job()).check(token) == (7, 2), "the service was restarted"


@pytest.mark.parametrize(
    "jobs",
    [
        {},
        {"_7": job(attempt=3)},
        {"_7": job(state=JobState.QUEUED)},
        *({"_7": job(state=state)} for state in JobState if not state.live),
    ],
)
def test_it_is_void_when_the_attempt_is_not_live(jobs: dict[str, Any]) -> None:
    assert tokens(**jobs).check(tokens().mint(7, 2)) is None


@pytest.mark.parametrize("state", [state for state in JobState if state.live])
def test_it_holds_from_start_to_outcome(state: JobState) -> None:
    assert tokens(_7=job(state=state)).check(tokens().mint(7, 2)) == (7, 2)


@pytest.mark.parametrize(
    "change",
    [
        lambda token: token.replace("gpj_7_", "gpj_8_"),
        lambda token: token.replace("_2_", "_1_"),
        lambda token: token[:-1] + ("0" if token[-1] != "0" else "1"),
        lambda token: token.upper(),
        lambda token: token + "\n",
        lambda token: token.replace("7", "\N{FULLWIDTH DIGIT SEVEN}", 1),
        lambda token: token.removeprefix("gpj_"),
        lambda token: "gpj_7_2_",
        lambda token: "gpj_" + "9" * 5000 + "_1_" + "0" * 64,
        lambda token: "",
    ],
)
def test_a_forged_one_is_none(change: Any) -> None:
    found = tokens(_7=job(), _8=job(attempt=2))
    assert found.check(change(found.mint(7, 2))) is None


def test_another_pools_is_none() -> None:
    assert tokens(_7=job()).check(tokens(b"t" * 32).mint(7, 2)) is None


def test_the_secret_is_made_once_and_is_nobody_elses(tmp_path: Path) -> None:
    file = tmp_path / "job-tokens.key"
    secret = secret_in(file)
    assert len(secret) == 32
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert secret_in(file) == secret
    file.write_bytes(b"")
    assert len(secret_in(file)) == 32
    assert [path.name for path in tmp_path.iterdir()] == ["job-tokens.key"]
