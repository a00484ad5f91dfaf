"""The account that a job runs as.

Owns: which names are permitted, and becoming one of them for good. Never: a guess; a name goes through
the system's account database or is refused.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jupyter_gpupool.engines.base import EngineError

LOGIN_DEFS, SHADOW = Path("/etc/login.defs"), Path("/etc/shadow")
UID_MIN = 1000
_NO_LOGIN = ("nologin", "false")
_DAY_S = 86400
_SHADOW_EXPIRY = 7
_PR_SET_DUMPABLE = 4
_KEYCTL = {"x86_64": 250, "aarch64": 219}  # the number of the system call
_KEYCTL_JOIN_SESSION_KEYRING, _KEYCTL_LINK = 1, 8
_SESSION_KEYRING, _USER_KEYRING = -3, -4
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Account:
    """A system account, as the kernel and a program need it; `groups` holds `gid` too."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str

    @classmethod
    def of(cls, found: pwd.struct_passwd) -> Account:
        """Return what the system's database says, and which groups the account is in."""
        groups = tuple(os.getgrouplist(found.pw_name, found.pw_gid))
        shell = found.pw_shell or "/bin/sh"
        return cls(found.pw_name, found.pw_uid, found.pw_gid, groups, found.pw_dir, shell)

    def environment(self) -> dict[str, str]:
        """The variables that a login would set."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}

    def as_json(self) -> dict[str, Any]:
        """The account for a message."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Account:
        """Undo `as_json`."""
        return cls(**{**value, "groups": tuple(value["groups"])})


def account_of(
    name: str, *, login_defs: Path = LOGIN_DEFS, shadow: Path = SHADOW, today: int | None = None
) -> Account:
    """Return the account `name`, if work may run as it.

    Parameters
    ----------
    login_defs, shadow
        Where ``UID_MIN`` and the dates of expiry are read; an unreadable `shadow` tells of no expiry.
    today
        Days since 1970-01-01; None = now.

    Raises
    ------
    EngineError
        There is no such account, or it is root's, the system's, without a login shell, or expired.
    """
    try:
        found = pwd.getpwnam(name)
    except (KeyError, ValueError):
        raise EngineError(
            f"This machine has no account {name!r}; ask its administrator to make it."
        ) from None
    day = int(time.time()) // _DAY_S if today is None else today
    if reason := _why_not(found, uid_min(login_defs), _expiry(found.pw_name, shadow), day):
        raise EngineError(f"Nothing runs as the account {name!r}: {reason}.")
    return Account.of(found)


def _why_not(found: pwd.struct_passwd, least: int, expiry: int | None, today: int) -> str:
    if found.pw_uid == 0:
        return "it is root's"
    if found.pw_uid < least:
        return f"its uid {found.pw_uid} is one of the system's (below UID_MIN, {least})"
    if os.path.basename(found.pw_shell) in _NO_LOGIN:
        return f"its login shell is {found.pw_shell}"
    if expiry is not None and today >= expiry:
        return f"it expired on {time.strftime('%Y-%m-%d', time.gmtime(expiry * _DAY_S))}"
    return ""


def uid_min(login_defs: Path = LOGIN_DEFS) -> int:
    """The least uid that is a person's, as ``UID_MIN`` of `login_defs` says."""
    try:
        lines = login_defs.read_text(errors="replace").splitlines()
    except OSError:
        return UID_MIN
    found = [words[1] for line in lines if (words := line.split())[:1] == ["UID_MIN"] and len(words) > 1]
    return int(found[-1]) if found and found[-1].isdecimal() else UID_MIN


def _expiry(name: str, shadow: Path) -> int | None:
    """The day on which the account expires, in days since 1970; None = never, or not told."""
    try:
        lines = shadow.read_bytes().splitlines()
    except OSError:
        return None
    for line in lines:
        fields = line.split(b":")
        if fields[0] == os.fsencode(name) and len(fields) > _SHADOW_EXPIRY:
            day = fields[_SHADOW_EXPIRY]
            return int(day) if day.isdigit() else None
    return None


def drop(account: Account) -> None:
    """Become `account` for good, unreadable for its other processes until the next exec.

    Raises
    ------
    OSError
        This process may not, or could still go back.
    """
    os.setgroups(account.groups)
    os.setresgid(account.gid, account.gid, account.gid)
    os.setresuid(account.uid, account.uid, account.uid)
    _take_keyring()
    if _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if os.getresuid() != (account.uid,) * 3 or os.getresgid() != (account.gid,) * 3 or _can_go_back():
        raise PermissionError(f"this process could not become {account.name} for good")


def _take_keyring() -> None:
    """As a login does: a session keyring of its own, not the launcher's, with the account's keys in it."""
    number = _KEYCTL.get(os.uname().machine)
    if number is not None and _libc.syscall(number, _KEYCTL_JOIN_SESSION_KEYRING, None) > 0:
        _libc.syscall(number, _KEYCTL_LINK, _USER_KEYRING, _SESSION_KEYRING)


def _can_go_back() -> bool:
    try:
        os.setuid(0)
    except PermissionError:
        return False
    return True
