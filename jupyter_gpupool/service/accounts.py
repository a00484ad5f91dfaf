"""Which system account a user's work runs as.

Owns: asking before anything is queued, so that a user without one is told at once. The launcher, which is the
one that becomes another account, asks again for itself. Never: becoming one.
"""

from __future__ import annotations

from jupyter_gpupool.engines.base import EngineError
from jupyter_gpupool.engines.local.identity import account_of
from jupyter_gpupool.policy.model import Policy
from jupyter_gpupool.service.aside import aside
from jupyter_gpupool.service.config import ServiceConfig
from jupyter_gpupool.service.errors import invalid


async def account_for(user: str, config: ServiceConfig, policy: Policy) -> str | None:
    """Return the account for a user's work; None where all work runs as the service's own.

    Raises
    ------
    ApiError
        The user's name is no account here that may run work.
    """
    if not config.as_users(policy):
        return None
    try:
        found = await aside(account_of, user)
    except EngineError as error:
        raise invalid(str(error), "Nothing was queued.", code="no_account") from None
    return found.name
