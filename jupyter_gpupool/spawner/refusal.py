"""How a login is refused: one sentence that every face of the Hub shows as it is.

Owns: `Refusal`. Never: whether to refuse.
"""

from __future__ import annotations

from jupyterhub.spawner import SpawnException

from jupyter_gpupool.client.errors import PoolError
from jupyter_gpupool.spawner.answers import Unusable

CONFLICT, UNAVAILABLE = 409, 503


class Refusal(SpawnException):  # type: ignore[misc]
    """A server is not started, for a reason that its user can read.

    Parameters
    ----------
    message : str
        One sentence, with the numbers and what to do.
    reason : str
        A short name in snake_case, for metrics.
    status_code : int
        The HTTP status that a REST caller gets.
    """

    def __init__(self, message: str, *, reason: str, status_code: int = CONFLICT) -> None:
        text = readable(message)
        super().__init__(text, reason=_label(reason), status_code=status_code)
        self.jupyterhub_message = text

    @classmethod
    def of(cls, error: PoolError) -> Refusal:
        """Say what the pool said."""
        status_code = UNAVAILABLE if isinstance(error, Unusable) else CONFLICT
        return cls(str(error), reason=error.code, status_code=status_code)


def readable(text: str) -> str:
    """Return `text` as it can be sent anywhere: valid Unicode, on one line."""
    return " ".join(text.encode("utf-8", "backslashreplace").decode().split())


def _label(reason: str) -> str:
    """Return `reason` as a metric's label and a status line can carry it."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in reason)[:40]
