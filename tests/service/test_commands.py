"""What is executed for a job, word for word."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpupool.client.home import Home
from jupyter_gpupool.engines.base import WorkSpec
from jupyter_gpupool.ledger.records import Job, JobState, LeaseRecord, LeaseState
from jupyter_gpupool.scheduler.model import GpuShare, Placement, Request
from jupyter_gpupool.service.commands import work_spec
from jupyter_gpupool.service.config import HubConfig, ServiceConfig
from jupyter_gpupool.service.snapshots import SnapshotStore

HOME = Path("/pool")
CODE = "/pool/jobs/7/2/code"
DIGEST = "0" * 64
JOB = Job(
    id=7,
    owner="ada",
    group="vision",
    name="train",
    kind="script",
    state=JobState.STARTING,
    priority="normal",
    submitted=0,
    limit_s=3600,
    grace_s=120,
    request=Request(gpu_mib=4096, cpus_milli=2500, memory_mib=8192),
    entry={"script": "a/train.py", "args": ["--x", "; rm -rf /"]},
    workdir="/home/ada",
    workdir_mode="here",
    resumable=False,
    window=None,
    snapshot=DIGEST,
    environment={"PATH": "/usr/bin", "PYTHONPATH": "/mine", "PYTORCH_ALLOC_CONF": "expandable_segments:True"},
    interpreter={"python": "/env/bin/python"},
    provenance={},
    notify=(),
    key=None,
    attempt=2,
    lease=5,
)
LEASE = LeaseRecord(
    id=5,
    work=7,
    kind="job",
    attempt=2,
    owner="ada",
    group="vision",
    priority="normal",
    request=JOB.request,
    placement=Placement(("host",), (GpuShare("GPU-1", 4096),), 125, "all"),
    mode="timeslice",
    charge_milli=1000,
    resumable=False,
    state=LeaseState.REQUESTED,
    boot_id="b",
    requested=0,
    start=0,
    end=3600,
)


def spec(mode: str = "timeslice", **changes: Any) -> WorkSpec:
    return spec_in(ServiceConfig(Home(HOME)), None, mode, **changes)


def spec_in(config: ServiceConfig, user: str | None, mode: str = "timeslice", **changes: Any) -> WorkSpec:
    snapshots = SnapshotStore(config.snapshots, 100)
    job, lease = replace(JOB, **changes), replace(LEASE, mode=mode)
    return work_spec(job, lease, config, snapshots, 32768, token="gpj_7_2_x", user=user)


@pytest.mark.parametrize(
    ("changes", "argv"),
    [
        ({}, ("/env/bin/python", f"{CODE}/a/train.py", "--x", "; rm -rf /")),
        (
            {"snapshot": None, "entry": {"script": "/home/ada/t.py", "args": []}},
            ("/env/bin/python", "/home/ada/t.py"),
        ),
        ({"kind": "command", "entry": {"argv": ["echo", "a b"]}}, ("echo", "a b")),
    ],
)
def test_the_program_and_its_arguments_are_never_a_shells(
    changes: dict[str, Any], argv: tuple[str, ...]
) -> None:
    assert spec(**changes).argv == argv


def test_hosts_of_cells_functions_and_notebooks() -> None:
    cell, function = spec(kind="cell", entry={}), spec(kind="function", entry={"name": "f"})
    assert cell.argv[0] == function.argv[0] == "/env/bin/python"
    assert cell.argv[1].endswith("client/hosts/cell_host.py")
    assert function.argv[1].endswith("client/hosts/function_host.py")
    assert Path(cell.argv[1]).is_file()
    entry = {"notebook": "n.ipynb", "parameters": {"a": 1}, "kernel": "python3"}
    notebook = spec(kind="notebook", entry=entry)
    assert notebook.argv[0] == sys.executable
    assert json.loads(notebook.environment["GPUPOOL_ENTRY"]) == entry


def test_where_and_for_how_long() -> None:
    found = spec()
    assert (found.key, found.folder, found.workdir) == ("7/2", "/pool/jobs/7", "/home/ada")
    assert (found.snapshot, found.snapshot_sha256) == (f"/pool/snapshots/ada/{DIGEST}.tar", DIGEST)
    assert (found.limit_s, found.grace_s, found.cpus_milli, found.memory_mib) == (3600, 120, 2500, 8192)
    assert spec(workdir_mode="snapshot").workdir == CODE


def test_what_the_job_finds_around_it() -> None:
    found = spec().environment
    assert found["GPUPOOL_JOB_DIR"] == "/pool/jobs/7/2"
    assert found["GPUPOOL_OUT_DIR"] == "/pool/jobs/7/out"
    assert found["GPUPOOL_CHECKPOINT_DIR"] == "/pool/jobs/7/checkpoint"
    assert (found["GPUPOOL_CODE_DIR"], found["GPUPOOL_ATTEMPT"]) == (CODE, "2")
    assert (found["GPUPOOL_JOB_ID"], found["GPUPOOL_LEASE_ID"]) == ("7", "5")
    assert found["PYTHONPATH"] == f"{CODE}:/mine:/pool/portable"
    assert (found["PATH"], found["PYTHONUNBUFFERED"]) == ("/usr/bin", "1")
    assert spec(environment={}).environment["PATH"]


def test_the_slice_is_asked_of_the_frameworks_and_the_users_own_settings_stay() -> None:
    found = spec().environment
    assert found["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert found["PYTORCH_ALLOC_CONF"] == "expandable_segments:True,per_process_memory_fraction:0.1250"
    assert found["OMP_NUM_THREADS"] == "2"
    assert spec("simulated").environment["CUDA_VISIBLE_DEVICES"] == ""


def test_a_run_has_the_same_name_in_every_attempt() -> None:
    first, second = (spec(attempt=attempt).environment["WANDB_RUN_ID"] for attempt in (1, 2))
    assert first == second
    assert first.endswith("-7")
    assert spec().environment["WANDB_RESUME"] == "allow"
    own = {"WANDB_RUN_ID": "mine", "WANDB_RESUME": "never"}
    assert own.items() <= spec(environment=own).environment.items()


UNDER_A_HUB = ServiceConfig(
    Home(HOME),
    hub=HubConfig("http://127.0.0.1:8081/hub/api", "t", Path("/pool/hub/hub.sock")),
    launcher=Path("/root-launcher"),
)


def test_it_reaches_a_hubs_pool_with_a_token_of_its_own() -> None:
    others = {"GPUPOOL_URL": "https://elsewhere", "GPUPOOL_TOKEN": "another job's"}
    found = spec_in(UNDER_A_HUB, "ada", environment=others).environment
    assert found["GPUPOOL_URL"] == f"unix:/pool/hub/hub.sock?uid={os.geteuid()}"
    assert found["GPUPOOL_TOKEN"] == "gpj_7_2_x"


def test_in_a_pool_of_ones_own_it_is_known_by_its_account() -> None:
    assert {"GPUPOOL_URL", "GPUPOOL_TOKEN"}.isdisjoint(spec().environment)


def test_under_a_hub_it_runs_as_its_user() -> None:
    found = spec_in(UNDER_A_HUB, "ada", environment={})
    assert (found.user, found.folder) == ("ada", "/root-launcher/jobs/7")
    assert found.environment["PYTHONPATH"].endswith(":/root-launcher/portable")
    assert "HOME" not in found.environment
    assert spec().user is None
    assert spec(environment={}).environment["HOME"] == os.path.expanduser("~")
