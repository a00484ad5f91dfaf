"""The pool that ``jupyter gpupool login`` chose, and the token for it.

Owns: one file in the user's configuration folder, which nobody else can read. Never: how the token was got
(see `jupyter_gpupool.client.hub`).
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from jupyter_gpupool.client.config import config_file
from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.client.files import write_whole


@dataclass(frozen=True)
class Login:
    """A pool behind a Hub, and who one is there.

    Attributes
    ----------
    url
        The pool's address; the token goes to this address alone.
    hub
        The Hub's address.
    user
        The name at the Hub.
    token
        The Hub's token.
    expires_at
        ISO 8601 time (UTC) from which the token is void; None = never.
    """

    url: str
    hub: str
    user: str
    token: str = field(repr=False)
    expires_at: str | None

    def valid_token(self, now: datetime | None = None) -> str:
        """Return the token.

        Raises
        ------
        Refused
            It has expired.
        """
        if self.expires_at and _moment(self.expires_at) <= (now or datetime.now(timezone.utc)):
            raise Refused(
                "login_expired",
                f"Your login at {self.hub} ended at {self.expires_at}.",
                hint=f"Log in again: jupyter gpupool login {self.hub}",
            )
        return self.token


def login_file(environ: Mapping[str, str]) -> Path:
    """Return where the login is kept."""
    return config_file(environ).with_name("login.json")


def stored(environ: Mapping[str, str]) -> Login | None:
    """Return the login, or None where there is none.

    Raises
    ------
    Refused
        When others can read the file, or it cannot be read as a login.
    """
    path = login_file(environ)
    try:
        with open(path, encoding="utf-8") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            text = file.read()
        login = Login(**json.loads(text))
        _moment(login.expires_at or "1970-01-01T00:00:00Z")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError):
        raise Refused(
            "invalid_login",
            f"Your login in {path} cannot be read.",
            hint="Remove it with: jupyter gpupool logout",
        ) from None
    if mode & 0o077 and os.name == "posix":
        raise Refused(
            "unsafe_login",
            f"Others can read your login in {path} (mode {mode:04o}).",
            hint="Revoke the token at your Hub, then log in again.",
        )
    return login


def store(login: Login, environ: Mapping[str, str]) -> Path:
    """Keep a login in place of the one before, readable by the user alone, and return the file."""
    path = login_file(environ)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(path, json.dumps(asdict(login), indent=2) + "\n", mode=0o600)
    return path


def forget(environ: Mapping[str, str]) -> None:
    """Remove the login, if there is one."""
    login_file(environ).unlink(missing_ok=True)


def _moment(text: str) -> datetime:
    """Read a time in UTC such as 2030-01-31T08:00:00Z, with or without fractions of a second."""
    return datetime.strptime(text[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
