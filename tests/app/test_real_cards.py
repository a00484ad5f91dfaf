"""A machine with cards, as its users meet it: the real binding over a stand-in for NVIDIA's library."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.app.conftest import Said
from tests.devices.stub import compiled_stub
from tests.faces.real import environment

GIB = 1024**3
Machine = Callable[..., Said]


@pytest.fixture
def card() -> str:
    return f"GPU-{uuid.uuid4()}"


@pytest.fixture
def machine(tmp_path: Path, card: str, require: Callable[[str], None]) -> Iterator[Machine]:
    """Run a command on a machine with one 80 GiB card, as the pool of the home that is named."""
    if compiled_stub(tmp_path) is None:
        require("there is no C compiler to build the stand-in for libnvidia-ml.so.1 (install gcc)")
    (tmp_path / "nvml.state").write_text(f"gpu 0 {card} {80 * GIB} 0 0 0\n")
    driver = {"LD_LIBRARY_PATH": str(tmp_path), "STUB_NVML_STATE": str(tmp_path / "nvml.state")}

    def run(home: str, *words: str) -> Said:
        surroundings = {**environment(tmp_path / home), **driver}
        surroundings.pop("GPUPOOL_SIMULATE", None)
        done = subprocess.run(
            [sys.executable, "-m", "jupyter_gpupool.app", *words],
            env=surroundings,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    yield run
    for home in ("first", "second"):
        run(home, "stop", "--jobs", "end")


def test_a_job_gets_a_real_card_by_its_uuid(machine: Machine, card: str, tmp_path: Path) -> None:
    (tmp_path / "see.py").write_text("import os\nprint(os.environ['CUDA_VISIBLE_DEVICES'])\n")
    assert machine("first", "submit", "see.py", "--gpus", "1", "--wait").code == 0
    assert machine("first", "logs", "last").out.strip() == card
    shown = machine("first", "show", "last")
    assert "simulated" not in shown.out
    assert "whole" in shown.out


def test_a_part_of_a_card_is_capped_and_called_soft(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "see.py").write_text("import os\nprint(os.environ['PYTORCH_ALLOC_CONF'])\n")
    assert machine("first", "submit", "see.py", "--gpu-memory", "20GiB", "--wait").code == 0
    assert "per_process_memory_fraction:0.25" in machine("first", "logs", "last").out
    assert "timeslice, soft" in machine("first", "show", "last").out


def test_a_second_owner_of_the_card_is_refused_and_told_who_the_first_is(
    machine: Machine, tmp_path: Path
) -> None:
    assert machine("first", "quota").code == 0
    owner = machine("first", "status", "--json").json
    refused = machine("second", "quota")
    assert refused.code == 1
    assert str(tmp_path / "first") in refused.err
    assert str(owner["pid"]) in refused.err
    assert "Traceback" not in refused.err


def test_the_pool_says_how_firmly_the_cards_are_its_own(machine: Machine) -> None:
    shown = machine("first", "gpus").out
    binding = os.geteuid() == 0 or Path("/run/gpupool").is_dir()
    assert ("cards are locked for this pool" if binding else "are advisory") in shown
