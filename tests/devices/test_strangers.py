from __future__ import annotations

import getpass
import os
import signal
import subprocess
from pathlib import Path

import pytest

from jupyter_gpupool.devices.base import Process
from jupyter_gpupool.devices.strangers import Holder, Stranger, holder_of, lease_of, strangers

UID = os.getuid()


class Proc:
    """A made-up /proc."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(
        self,
        pid: int,
        *,
        parent: int = 1,
        started: int = 1000,
        cgroup: str = "0::/user.slice",
        comm: str = "python3",
        environ: dict[str, str] | None = None,
    ) -> None:
        folder = self.root / str(pid)
        folder.mkdir()
        (folder / "stat").write_text(f"{pid} ({comm}) S {parent} {' '.join('0' * 17)} {started} 0 0\n")
        (folder / "cgroup").write_text(f"{cgroup}\n")
        (folder / "comm").write_text(f"{comm}\n")
        (folder / "environ").write_bytes(b"".join(f"{k}={v}\0".encode() for k, v in (environ or {}).items()))


@pytest.fixture
def proc(tmp_path):
    return Proc(tmp_path)


def lease(proc, pid, *holders):
    return lease_of(pid, holders, proc=proc.root)


def test_the_control_group_tells_first_and_its_children_count(proc):
    proc.add(50, cgroup="0::/gpupool/job-7-1", environ={"GPUPOOL_LEASE_ID": "8"})
    proc.add(51, cgroup="4:memory:/other\n0::/gpupool/job-7-1/worker")
    proc.add(52, cgroup="0::/gpupool/job-7-10")
    one = Holder(7, 10, 1, UID, "/gpupool/job-7-1")
    other = Holder(8, 11, 1, UID, "/gpupool/job-8-1")
    assert lease(proc, 50, other, one) == 7
    assert lease(proc, 51, other, one) == 7
    assert lease(proc, 52, other, one) is None


def test_a_leaf_may_be_given_as_the_folder_it_is(proc):
    proc.add(50, cgroup="0::/gpupool/job-7-1/worker")
    proc.add(51, cgroup="0::/")
    holder = Holder(7, 10, 1, UID, "/sys/fs/cgroup/unified/gpupool/job-7-1")
    assert lease(proc, 50, holder) == 7
    assert lease(proc, 51, holder) is None


def test_descendants_belong_to_the_lease(proc):
    proc.add(10, started=500)
    proc.add(11, parent=10)
    proc.add(12, parent=11, comm="a) b (c")
    proc.add(13)
    holder = Holder(7, 10, 500, UID)
    assert [lease(proc, pid, holder) for pid in (10, 11, 12, 13)] == [7, 7, 7, None]


def test_a_pid_used_again_is_not_the_holder(proc):
    proc.add(10, started=900)
    proc.add(11, parent=10)
    assert lease(proc, 11, Holder(7, 10, 500, UID)) is None


def test_the_environment_is_believed_of_the_leases_own_user_only(proc):
    proc.add(50, environ={"A": "1", "GPUPOOL_LEASE_ID": "7"})
    assert lease(proc, 50, Holder(7, 10, 1, UID)) == 7
    assert lease(proc, 50, Holder(7, 10, 1, UID + 1)) is None
    assert lease(proc, 50, Holder(77, 10, 1, UID)) is None


def test_a_parent_that_ends_meanwhile_closes_the_chain(proc):
    proc.add(50, parent=49)
    assert lease(proc, 50, Holder(7, 10, 1, UID)) is None


def test_strangers_are_named_with_what_is_known_and_without_their_arguments(proc):
    proc.add(50, comm="train.py")
    proc.add(51, parent=10)
    proc.add(10, started=500)
    seen = [
        Process(50, "GPU-0", None, "compute"),
        Process(51, "GPU-0", 400, "compute"),
        Process(52, "GPU-0", 100, "compute"),
    ]
    assert strangers(seen, [Holder(7, 10, 500, UID)], proc=proc.root) == [
        Stranger(50, "GPU-0", None, getpass.getuser(), "train.py")
    ]


def test_a_process_that_is_gone_is_no_stranger():
    child = subprocess.Popen(["true"])
    child.wait()
    assert strangers([Process(child.pid, "GPU-0", 1, "compute")], []) == []


def test_an_orphan_is_found_by_its_environment():
    """A real tree: the holder, and a process that left it for a session and a parent of its own."""
    holding = subprocess.Popen(
        ["sh", "-c", "(setsid sh -c 'echo $$; sleep 60; :' &); echo left; sleep 60; :"],
        env={**os.environ, "GPUPOOL_LEASE_ID": "7"},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert holding.stdout is not None
    orphan = int(min(holding.stdout.readline() for _ in range(2)))  # the other line says “left”
    try:
        holder = holder_of(7, holding.pid)
        assert lease_of(holding.pid, [holder]) == 7
        assert lease_of(orphan, [holder]) == 7
        assert lease_of(orphan, [holder_of(8, holding.pid)]) is None
        assert lease_of(os.getpid(), [holder]) is None
    finally:
        os.killpg(orphan, signal.SIGKILL)
        os.killpg(holding.pid, signal.SIGKILL)
        holding.communicate()
