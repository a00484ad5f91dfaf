"""Who is asking.

Owns: `Identity`; the step to it from the process at the other end of a socket, and from a job's own token;
and the rule who may connect at all. A Hub's tokens are read in `hub`. Never: what an identity may do (see
`scopes`).
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from jupyter_gpupool.client.peercred import Peer
from jupyter_gpupool.ledger.records import Job
from jupyter_gpupool.service.errors import ApiError, forbidden
from jupyter_gpupool.service.scopes import ADMINISTRATOR, Scope
from jupyter_gpupool.service.tokens import PREFIX, JobTokens

_CREDENTIAL = re.compile(r"(?:token|bearer)\s+(\S+)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Identity:
    """A user of the pool, a service of the Hub, or a job that reports on itself.

    Attributes
    ----------
    uid, pid
        Of the user's own process that asks; None where somebody else's process passes the request on.
    hub_groups
        The user's groups on the Hub; None where no Hub says who belongs where: then the policy's member
        lists do.
    job
        The job whose token this is.
    """

    user: str
    scopes: frozenset[Scope] = frozenset()
    uid: int | None = None
    pid: int | None = None
    hub_groups: tuple[str, ...] | None = None
    job: int | None = None

    @property
    def admin(self) -> bool:
        """Whether this is an administrator of the pool."""
        return "admin" in self.scopes

    @property
    def sees_all(self) -> bool:
        """Whether this one sees everybody's names, whatever the policy shows to users."""
        return "read_all" in self.scopes


NOBODY = Identity("")
"""Who has not said who they are."""

Identify = Callable[[Peer], Identity]


def identify(peer: Peer) -> Identity:
    """Return who a peer is: this service's own account, and root, are its administrators.

    Raises
    ------
    ApiError
        The peer runs under another account.
    """
    if peer.uid not in (os.geteuid(), 0):
        raise forbidden(f"This pool belongs to {user_name(os.geteuid())}; you are {user_name(peer.uid)}.")
    return Identity(user_name(peer.uid), ADMINISTRATOR, peer.uid, peer.pid)


def credential(authorization: str | None) -> str | None:
    """Return the token of an `Authorization` header, if it has one."""
    found = _CREDENTIAL.fullmatch(authorization or "")
    return found[1] if found else None


def job_identity(token: str | None, tokens: JobTokens, jobs: Mapping[int, Job]) -> Identity | None:
    """Return the job that a token speaks for; None for a token of another kind.

    Raises
    ------
    ApiError
        The token is a job's, but forged or void.
    """
    if token is None or not token.startswith(PREFIX):
        return None
    found = tokens.check(token)
    if found is None:
        raise ApiError(
            401,
            "void_token",
            "This job's token is not valid, or no longer: a token ends with its run of the job.",
        )
    job = jobs[found[0]]
    return Identity(job.owner, frozenset(("report",)), hub_groups=(job.group,), job=job.id)


@lru_cache(maxsize=64)
def user_name(uid: int) -> str:
    """Return an account's name; its number where the system has no name for it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
