from __future__ import annotations

import getpass
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpupool.devices import locks
from jupyter_gpupool.devices.base import DevicesError
from jupyter_gpupool.devices.locks import CardLocks, CardTakenError

OWNER = """
import sys, pathlib
from jupyter_gpupool.devices.locks import CardLocks
held = CardLocks.take(["GPU-a"], home=pathlib.Path("/home/ada/pool"),
                      system=pathlib.Path(sys.argv[1]), advisory=pathlib.Path(sys.argv[2]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def system(tmp_path):
    return tmp_path / "run"


@pytest.fixture
def shared(tmp_path):
    return tmp_path / "tmp"


@pytest.fixture
def as_user(monkeypatch):
    """Be somebody for whom root's folder is only there if root made it."""
    monkeypatch.setattr(locks.os, "geteuid", lambda: 4321)


@pytest.fixture
def take(system, shared, tmp_path):
    held: list[CardLocks] = []

    def take(*uuids: str) -> CardLocks:
        held.append(CardLocks.take(uuids, home=tmp_path / "home", system=system, advisory=shared))
        return held[-1]

    yield take
    for each in held:
        each.release()


@pytest.fixture
def owner(system, shared):
    """Another process that owns GPU-a."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(system), str(shared)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_owner_is_refused_by_name(owner, take):
    with pytest.raises(CardTakenError) as refused:
        take("GPU-a")
    said = str(refused.value)
    assert f"GPU GPU-a already belongs to a pool of {getpass.getuser()}" in said
    assert f"process {owner.pid}, home /home/ada/pool" in said
    assert "jupyter gpupool stop" in said


def test_a_killed_owner_holds_nothing(owner, take):
    owner.kill()
    owner.wait()
    take("GPU-a")


def test_all_cards_are_taken_or_none(owner, take):
    with pytest.raises(CardTakenError):
        take("GPU-b", "GPU-a")
    take("GPU-b")


def test_other_cards_are_free(owner, take):
    take("GPU-b", "GPU-c")


def test_released_cards_can_be_taken_again(take):
    first = take("GPU-a")
    with pytest.raises(CardTakenError, match=f"process {os.getpid()}"):
        take("GPU-a")
    first.release()
    first.release()
    take("GPU-a")


def test_without_roots_folder_the_locks_are_advisory_and_say_so(take, as_user, system, shared):
    held = take("GPU-a")
    assert held.advisory
    assert "advisory" in held.describe()
    assert not system.exists()
    assert stat.S_IMODE(shared.stat().st_mode) == 0o1777
    assert stat.S_IMODE((shared / "GPU-a").stat().st_mode) == 0o666


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes the system's folder")
def test_root_makes_the_folder_that_binds_everyone(take, system):
    held = take("GPU-a")
    assert not held.advisory
    assert "locked for this pool" in held.describe()
    assert stat.S_IMODE(system.stat().st_mode) == 0o1777


def test_a_pool_from_before_roots_folder_is_seen(system, shared, monkeypatch, tmp_path):
    with monkeypatch.context() as as_user:
        as_user.setattr(locks.os, "geteuid", lambda: 4321)
        held = CardLocks.take(["GPU-a"], home=tmp_path, system=system, advisory=shared)
    system.mkdir(mode=0o700)
    with pytest.raises(CardTakenError):
        CardLocks.take(["GPU-a"], home=tmp_path, system=system, advisory=shared)
    held.release()
    CardLocks.take(["GPU-a"], home=tmp_path, system=system, advisory=shared).release()


def test_a_link_in_place_of_the_folder_is_refused(take, as_user, shared, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    shared.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DevicesError, match=r"cannot be opened as one .*: have it removed"):
        take("GPU-a")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_folder_where_all_may_remove_the_locks_of_others_is_refused(take, as_user, shared):
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(DevicesError, match="set its mode to 1777"):
        take("GPU-a")


def _link(path: Path, target: Path) -> None:
    path.symlink_to(target)


def _hard_link(path: Path, target: Path) -> None:
    path.hardlink_to(target)


def _fifo(path: Path, target: Path) -> None:
    os.mkfifo(path)


def _folder(path: Path, target: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("trick", [_link, _hard_link, _fifo, _folder])
def test_tricks_in_place_of_a_lock_are_refused_and_harm_nothing(trick, take, as_user, shared, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    shared.mkdir()
    shared.chmod(0o1777)
    trick(shared / "GPU-a", precious)
    with pytest.raises(DevicesError, match="have it removed"):
        take("GPU-a")
    assert precious.read_text() == "precious"


def test_tricks_under_tmp_do_not_stop_a_pool_with_binding_locks(take, system, shared):
    system.mkdir()
    shared.write_text("in the way")
    assert not take("GPU-a").advisory


@pytest.mark.parametrize("uuid", ["../GPU-a", "", "GPU a", "a/b"])
def test_a_name_that_is_no_uuid_makes_no_file(take, uuid, system, shared):
    with pytest.raises(DevicesError, match="no UUID"):
        take(uuid)
    assert not any(shared.iterdir()) if shared.exists() else True


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"", "somebody who has not left a name"),
        (b"\xff{", "somebody who has not left a name"),
        (b"[" * 4096, "somebody who has not left a name"),
        (json.dumps({"user": "a\x1b[31m\nb", "pid": 1, "home": "/"}).encode(), r"a\?\[31m\?b"),
    ],
)
def test_what_an_owner_wrote_is_shown_but_not_trusted(take, as_user, shared, written, shown):
    take("GPU-a")
    (shared / "GPU-a").write_bytes(written)
    with pytest.raises(CardTakenError, match=shown):
        take("GPU-a")
