"""What an end means for a job, and why it came."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpupool.engines.base import Ended
from jupyter_gpupool.ledger.records import JobState
from jupyter_gpupool.service.outcomes import (
    FINISHED,
    IN_ITS_GRACE,
    diagnose,
    outcome_of,
    traceback_tail,
)

EXIT = Ended("1/1", 0, None, "exit", "", None, False, 0.0, True)

TRACEBACK = """step 1
Traceback (most recent call last):
  File "a.py", line 1, in <module>
    f()
  File "a.py", line 9, in f
    1 / 0
ZeroDivisionError: division by zero
"""
CHAINED = (
    TRACEBACK
    + "\nDuring handling of the above exception, another exception occurred:\n\n"
    + TRACEBACK.replace("ZeroDivisionError: division by zero", "KeyError: 'x'")
)


@pytest.mark.parametrize(
    ("changes", "state", "sentence"),
    [
        ({}, "completed", "Finished with exit code 0."),
        ({"cause": "limit"}, "completed", "Finished with exit code 0."),
        ({"cause": "cancel"}, "completed", "Finished with exit code 0."),
        ({"exit_code": 3}, "failed", "Finished with exit code 3."),
        ({"exit_code": None, "signal": 11}, "failed", "Ended by signal 11 (SIGSEGV)."),
        ({"exit_code": None, "signal": 15, "cause": "cancel"}, "cancelled", "Cancelled while it ran."),
        ({"exit_code": None, "signal": 9, "cause": "limit"}, "timed_out", "Stopped at its time limit of 1h."),
        ({"exit_code": None, "signal": 15, "cause": "stop"}, None, "Stopped to run again later."),
        ({"exit_code": 143, "cause": "stop"}, None, "Stopped to run again later."),
        ({"cause": "stop"}, "completed", FINISHED + IN_ITS_GRACE),
        ({"exit_code": None, "cause": "reboot"}, None, "The machine was restarted while the job ran."),
        ({"exit_code": None, "cause": "lost"}, "failed", "The job's runner was killed."),
        ({"exit_code": None, "cause": "start", "message": "No such program."}, "failed", "No such program."),
    ],
)
def test_outcome(changes: dict, state: str | None, sentence: str) -> None:
    found = outcome_of(replace(EXIT, **changes), "1h")
    assert found.state == (None if state is None else JobState(state))
    assert found.sentence == sentence


def diagnosis(log: str, **changes: object) -> dict:
    ended = replace(EXIT, **({"exit_code": 1} | changes))
    return diagnose(ended, log, memory_mib=4096, gpu_mib=8192).as_dict()


def test_an_exception_is_its_last_line() -> None:
    found = diagnosis(TRACEBACK)
    assert (found["kind"], found["summary"]) == ("exception", "ZeroDivisionError: division by zero")
    assert found["lines"][0].startswith("Traceback")
    assert found["lines"][-1] == "ZeroDivisionError: division by zero"


def test_the_last_of_chained_tracebacks_counts() -> None:
    assert diagnosis(CHAINED)["summary"] == "KeyError: 'x'"


def test_what_is_printed_after_the_traceback_is_no_part_of_it() -> None:
    assert traceback_tail(TRACEBACK + "cleaning up\n")[-1] == "ZeroDivisionError: division by zero"


def test_colours_are_taken_off() -> None:
    assert diagnosis("\x1b[31m" + TRACEBACK + "\x1b[0m")["kind"] == "exception"


@pytest.mark.parametrize(
    "line",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has",
        "jaxlib.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2.50GiB",
    ],
)
def test_gpu_out_of_memory_says_how_much(line: str) -> None:
    found = diagnosis(TRACEBACK.replace("ZeroDivisionError: division by zero", line))
    assert found["kind"] == "gpu_out_of_memory"
    assert "8192 MiB" in found["summary"]
    assert "2.50" in found["summary"]
    assert found["limit_mib"] == 8192


def test_host_out_of_memory_gives_peak_and_limit() -> None:
    found = diagnosis("", exit_code=None, signal=9, oom=True, peak_mib=4000)
    assert (found["kind"], found["peak_mib"], found["limit_mib"]) == ("host_out_of_memory", 4000, 4096)
    assert "4096 MiB (peak 4000 MiB)" in found["summary"]
    assert "--mem" in found["hint"]


@pytest.mark.parametrize(
    ("log", "changes", "kind", "word"),
    [
        ("OSError: [Errno 28] No space left on device\n", {}, "disk_full", "disk"),
        (
            "Traceback (most recent call last):\n  x\nModuleNotFoundError: No module named 'torch'\n",
            {},
            "missing_module",
            "torch",
        ),
        ("", {"exit_code": None, "signal": 11}, "signal", "SIGSEGV"),
        ("", {"exit_code": None, "signal": 9}, "signal", "SIGKILL"),
        ("", {"exit_code": None, "cause": "lost"}, "runner_killed", "runner"),
        ("", {"exit_code": None, "cause": "start", "message": "x is no program."}, "not_started", "x is no"),
        ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off\n", {}, "gpu_fault", "79"),
        ("all fine\n", {"exit_code": 7}, "exit_code", "7"),
        ("half a li", {"message": "The disk was full."}, "disk_full", "The disk was full."),
        ("The notebook's kernel died.\n", {}, "kernel_died", "kernel died"),
        ("The cell ran, but there is no variable 'z' to bring back.\n", {}, "no_result", "variable 'z'"),
    ],
)
def test_kinds(log: str, changes: dict, kind: str, word: str) -> None:
    found = diagnosis(log, **changes)
    assert found["kind"] == kind
    assert word in found["summary"]


def test_endless_lines_are_cut() -> None:
    assert [len(line) for line in diagnosis("x" * 60_000 + "\nend\n")["lines"]] == [500, 3]
