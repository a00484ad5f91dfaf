"""Control groups are found wherever they are mounted, hold a job, and are removed again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jupyter_gpupool.engines.local import cgroups
from jupyter_gpupool.engines.local.cgroups import Subtree, hierarchies

PURE = (
    "22 1 0:1 / /proc rw - proc proc rw\n"
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
)
HYBRID = (
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)
CONTAINER = (
    "33 31 0:38 /docker/abc /sys/fs/cgroup/memory ro master:9 - cgroup cgroup rw,memory\n"
    "34 31 0:39 /docker/abc /my\\040groups rw - cgroup2 cgroup rw\n"
)


def test_a_pure_v2_host():
    (found,) = hierarchies(PURE, "0::/user.slice/user-7.slice/session-2.scope\n")
    assert (found.version, found.mount) == (2, Path("/sys/fs/cgroup"))
    assert found.here == Path("/sys/fs/cgroup/user.slice/user-7.slice/session-2.scope")
    assert found.name_of(found.mount / "pool" / "job") == "/pool/job"


def test_a_hybrid_host():
    found = hierarchies(HYBRID, "4:memory:/a\n2:cpu,cpuacct:/b\n1:name=systemd:/c\n0::/d\n")
    assert [(one.version, one.own) for one in found] == [(1, "/b"), (1, "/a"), (2, "/d")]
    assert found[0].controllers == {"cpu", "cpuacct"}


def test_a_container_sees_a_part_of_the_hierarchy():
    found = hierarchies(CONTAINER, "4:memory:/docker/abc/x\n0::/docker/abc/x\n")
    assert found[0].here == Path("/sys/fs/cgroup/memory/x")
    assert found[1].here == Path("/my groups/x")
    assert found[1].name_of(Path("/my groups/pool")) == "/docker/abc/pool"


def _pretend(root: Path, *groups: str) -> str:
    """A folder that looks like a v2 hierarchy; returns its mount table."""
    for group in ("", *groups):
        (root / group).mkdir(parents=True, exist_ok=True)
        (root / group / "cgroup.procs").write_text("")
    return f"30 23 0:26 / {root} rw - cgroup2 cgroup2 rw\n"


def test_the_subtree_lies_as_high_as_we_may_write(tmp_path, monkeypatch):
    table = _pretend(tmp_path, "user", "user/me", "user/me/terminal")
    closed = {tmp_path, tmp_path / "user"}
    monkeypatch.setattr(cgroups.os, "access", lambda path, mode: Path(path) not in closed)
    (found,) = hierarchies(table, "0::/user/me/terminal\n")
    assert found.highest() == tmp_path / "user" / "me"


def test_a_mount_that_only_looks_like_one_is_not_used(tmp_path):
    table = _pretend(tmp_path)
    subtree = Subtree.at(tmp_path, table, "0::/\n")
    assert subtree.held is None
    assert not subtree.enter("launcher")
    assert subtree.make_leaf("job") is None
    assert not subtree.survival().whole_tree


def test_a_subtree_inside_our_own_group_says_so(tmp_path, monkeypatch):
    table = _pretend(tmp_path, "scope")
    monkeypatch.setattr(cgroups, "_can_hold", lambda base, name: True)
    monkeypatch.setattr(cgroups.os, "access", lambda path, mode: Path(path) != tmp_path)
    subtree = Subtree.at(tmp_path, table, "0::/scope\n")
    assert subtree.held.parent == tmp_path / "scope"
    assert "Jobs end when the control group /scope" in subtree.survival().sentence
    inside = Subtree.at(tmp_path, table, f"0::/scope/{subtree.held.name}/service\n")
    assert inside.survival() == subtree.survival()


def _v1_only() -> str:
    lines = Path("/proc/self/mountinfo").read_text().splitlines(keepends=True)
    return "".join(line for line in lines if " - cgroup2 " not in line)


@pytest.fixture(params=["as it is", "v1 only"])
def subtree(request, tmp_path, whole_tree):
    found = Subtree.at(tmp_path, _v1_only() if request.param == "v1 only" else None)
    if found.held is None:
        pytest.skip("this host has no v1 hierarchy")
    yield found
    found.sweep()
    assert not found.held.exists()


def _start_inside(leaf: cgroups.Leaf, code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-S", "-c", code], preexec_fn=leaf.enter, stdout=subprocess.PIPE)


def test_looking_for_a_place_leaves_nothing(subtree):
    assert not subtree.held.exists()


def test_killing_a_leaf_ends_all_that_forks_in_it(subtree):
    leaf = subtree.make_leaf("job")
    bomb = (
        "import os, time\nos.setsid()\nos.write(1, b'x')\n"
        "for n in range(200):\n    if os.fork() == 0: os.setsid()\n    if n > 3: time.sleep(0.01)"
    )
    process = _start_inside(leaf, bomb)
    with process:
        process.stdout.read(1)
        give_up = time.monotonic() + 20
        while leaf.pids():
            leaf.kill()
            assert time.monotonic() < give_up
    leaf.remove()
    assert not leaf.held.exists()
    assert not any(limit.exists() for limit in leaf.limits)


def test_groups_that_the_job_made_count_and_are_removed(subtree):
    leaf = subtree.make_leaf("job")
    process = _start_inside(leaf, "import time; print(1, flush=True); time.sleep(60)")
    with process:
        process.stdout.read(1)
        below = leaf.held / "below" / "lower"
        below.mkdir(parents=True)
        (below / "cgroup.procs").write_text(str(process.pid))
        assert leaf.pids() == {process.pid}
        leaf.remove()
        assert leaf.held.exists()
        while leaf.pids():
            leaf.kill()
    leaf.remove()
    assert not leaf.held.exists()


def test_a_leaf_is_named_as_proc_names_it(subtree):
    leaf = subtree.make_leaf("job")
    process = _start_inside(leaf, "print(open('/proc/self/cgroup').read())")
    out, _ = process.communicate()
    assert f":{leaf.name}\n" in out.decode()


def test_a_leaf_caps_cpu_where_a_controller_can(subtree):
    leaf = subtree.make_leaf("job")
    leaf.limit(cpus_milli=1500, memory_mib=0)
    quotas = [
        file.read_text().split()
        for directory in (leaf.held, *leaf.limits)
        for file in (directory / "cpu.max", directory / "cpu.cfs_quota_us")
        if file.exists()
    ]
    if not quotas:
        pytest.skip("no cpu controller can be used here")
    assert quotas == [["150000"]] or quotas == [["150000", "100000"]]


def test_sweeping_keeps_what_is_named_or_in_use(subtree):
    kept, swept, used = (subtree.make_leaf(name) for name in ("kept", "swept", "used"))
    process = _start_inside(used, "import time; print(1, flush=True); time.sleep(60)")
    with process:
        process.stdout.read(1)
        subtree.sweep(keep=frozenset({"kept"}))
        assert (kept.held.exists(), swept.held.exists(), used.held.exists()) == (True, False, True)
        os.kill(process.pid, 9)


def test_a_leaf_survives_being_written_down(subtree):
    leaf = subtree.make_leaf("job")
    assert cgroups.Leaf.from_json(leaf.as_json()) == leaf
