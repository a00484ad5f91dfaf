"""Which accounts work may run as, and that becoming one is for good."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from jupyter_gpupool.engines.base import EngineError
from jupyter_gpupool.engines.local import identity
from jupyter_gpupool.engines.local.identity import Account, account_of, drop, uid_min

ADA = pwd.struct_passwd(("ada", "x", 1234, 1234, "", "/home/ada", "/bin/bash"))
TODAY = 20_000


def known(monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    """Let the machine know one account, ada's, with `changes`."""
    names = ("pw_name", "pw_passwd", "pw_uid", "pw_gid", "pw_gecos", "pw_dir", "pw_shell")
    ada = pwd.struct_passwd([changes.get(name, getattr(ADA, name)) for name in names])
    monkeypatch.setattr(identity.pwd, "getpwnam", {ada.pw_name: ada}.__getitem__)
    monkeypatch.setattr(identity.os, "getgrouplist", lambda name, gid: [gid, 50])


@pytest.fixture
def files(tmp_path: Path) -> dict[str, object]:
    """The machine's files about accounts, as `account_of` takes them."""
    (tmp_path / "login.defs").write_text("# UID_MIN 5\nUID_MIN\t\t 1000\nSYS_UID_MIN 100\n")
    (tmp_path / "shadow").write_text("")
    return {"login_defs": tmp_path / "login.defs", "shadow": tmp_path / "shadow", "today": TODAY}


def test_an_account_with_all_that_belongs_to_it(monkeypatch, files):
    known(monkeypatch)
    found = account_of("ada", **files)
    assert found == Account("ada", 1234, 1234, (1234, 50), "/home/ada", "/bin/bash")
    assert found.environment() == {
        "HOME": "/home/ada",
        "USER": "ada",
        "LOGNAME": "ada",
        "SHELL": "/bin/bash",
    }
    assert Account.from_json(found.as_json()) == found


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"pw_uid": 0}, "root's"),
        ({"pw_uid": 999}, "uid 999 .* UID_MIN, 1000"),
        ({"pw_shell": "/usr/sbin/nologin"}, "login shell is /usr/sbin/nologin"),
        ({"pw_shell": "/bin/false"}, "login shell is /bin/false"),
    ],
)
def test_an_account_that_is_no_persons_is_refused(monkeypatch, files, changes, says):
    known(monkeypatch, **changes)
    with pytest.raises(EngineError, match=f"^Nothing runs as the account 'ada': it.* {says}"):
        account_of("ada", **files)


@pytest.mark.parametrize("name", ["", "bob", "0", "ada ", "ada\0", "ada\n", "\udcff", "ädä", "../ada"])
def test_an_unknown_name_is_refused(files, name):
    with pytest.raises(EngineError, match="has no account"):
        account_of(name, **files)


@pytest.mark.parametrize(
    ("expiry", "refused"),
    [("", False), (str(TODAY + 1), False), (str(TODAY), True), ("0", True), ("-1", False)],
)
def test_an_expired_account_is_refused(monkeypatch, files, expiry, refused):
    known(monkeypatch)
    files["shadow"].write_text(f"adam:x:1:0:9:7::1:\nada:x:19000:0:99999:7::{expiry}:\n")
    if refused:
        with pytest.raises(EngineError, match="it expired on "):
            account_of("ada", **files)
    else:
        assert account_of("ada", **files).uid == 1234


def test_without_the_files_the_usual_limits_hold(monkeypatch, tmp_path):
    known(monkeypatch)
    assert uid_min(tmp_path / "missing") == 1000
    assert account_of("ada", login_defs=tmp_path / "missing", shadow=tmp_path / "missing").name == "ada"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_an_account_is_for_good():
    child = os.fork()
    if child == 0:
        good = False
        try:
            drop(Account("ada", 4321, 4322, (4322, 50), "/", "/bin/sh"))
            ids = (os.getresuid(), os.getresgid(), sorted(os.getgroups()))
            good = ids == ((4321,) * 3, (4322,) * 3, [50, 4322]) and not _back_to_root()
        finally:
            os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _back_to_root() -> bool:
    for become in (os.setuid, os.seteuid, os.setgid, os.setegid):
        try:
            become(0)
        except PermissionError:
            continue
        return True
    return False
