"""The tokens with which jobs report on themselves.

Owns: the pool's secret, making a token of it for one attempt of a job, and checking one. Nothing is stored
for a token, so it works as long as its attempt is live, whatever was restarted meanwhile. Never: what a
token permits (see `scopes`).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from jupyter_gpupool.ledger.records import Job

PREFIX = "gpj_"
SECRET_BYTES = 32
_TOKEN = re.compile(PREFIX + r"([0-9]{1,18})_([0-9]{1,9})_([0-9a-f]{64})")


class JobTokens:
    """Makes and checks the tokens of a pool's jobs.

    Parameters
    ----------
    secret
        What tokens are made with; see `secret_in`.
    jobs
        The ledger's jobs by id, as they are now.
    """

    def __init__(self, secret: bytes, jobs: Mapping[int, Job]):
        self._secret = secret
        self._jobs = jobs

    def mint(self, job: int, attempt: int) -> str:
        """Return the token of one attempt of a job; it is the same each time."""
        return f"{PREFIX}{job}_{attempt}_{self._seal(job, attempt)}"

    def check(self, token: str) -> tuple[int, int] | None:
        """Return the job and the attempt that a token speaks for; None for one that is forged or void.

        A token is void once the outcome of its attempt is recorded.
        """
        found = _TOKEN.fullmatch(token)
        if found is None:
            return None
        number, attempt = int(found[1]), int(found[2])
        if not hmac.compare_digest(found[3], self._seal(number, attempt)):
            return None
        job = self._jobs.get(number)
        live = job is not None and job.state.live and job.attempt == attempt
        return (number, attempt) if live else None

    def _seal(self, job: int, attempt: int) -> str:
        return hmac.new(self._secret, f"{job}/{attempt}".encode(), hashlib.sha256).hexdigest()


def secret_in(file: Path) -> bytes:
    """Return the secret kept in a file (0600), which is made if it is not there or not whole.

    Raises
    ------
    OSError
        It can be neither read nor made.
    """
    try:
        found = file.read_bytes()
    except FileNotFoundError:
        found = b""
    if len(found) == SECRET_BYTES:
        return found
    made = secrets.token_bytes(SECRET_BYTES)
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as opened:
        opened.write(made)
        opened.flush()
        os.fsync(opened.fileno())
    os.replace(beside, file)
    return made
