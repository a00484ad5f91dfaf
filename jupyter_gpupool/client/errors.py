"""What the client says when something cannot be done: one clear sentence, with the numbers and a remedy.

Owns: the exceptions that every face catches and prints as they are. Never: printing, exit codes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


class PoolError(Exception):
    """A refusal of the pool, or of the client on its behalf.

    Parameters
    ----------
    code : str
        A short name in snake_case, stable for programs.
    message : str
        One sentence for a person: what is wrong, with the numbers.
    used, limit : number, optional
        What is in use and what is allowed, in `unit`.
    retry_at : str, optional
        ISO 8601 time (UTC) from which the same request may succeed.
    hint : str, optional
        What to do about it.
    status : int, optional
        The HTTP status with which it came.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        used: float | None = None,
        limit: float | None = None,
        unit: str | None = None,
        retry_at: str | None = None,
        hint: str | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.used = used
        self.limit = limit
        self.unit = unit
        self.retry_at = retry_at
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message

    @property
    def is_away(self) -> bool:
        """Whether the service is not there for the time being, whoever says so."""
        return self.code == "service_down" or self.status in (502, 503, 504)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields of the one error shape of every face, ``{"error": {…}}``."""
        fields = ("code", "message", "used", "limit", "unit", "retry_at", "hint")
        return {name: getattr(self, name) for name in fields}

    @classmethod
    def from_reply(cls, status: int, body: bytes) -> PoolError:
        """Read the error that a reply carries; one of another shape (a proxy's, a Hub's) is described."""
        try:
            error: Mapping[str, Any] = json.loads(body)["error"]
            known = {name: error.get(name) for name in ("used", "limit", "unit", "retry_at", "hint")}
            return cls(str(error["code"]), str(error["message"]), status=status, **known)
        except (ValueError, KeyError, TypeError, AttributeError):
            code, message, hint = _OTHERS_WORDS.get(status, _UNEXPECTED)
            return cls(code, message.format(status=status), hint=hint, status=status)


_ADMINISTRATOR = "Your Hub's administrator runs it."
_UNEXPECTED = ("unexpected_reply", "The pool's service answered with HTTP status {status}.", None)
_OTHERS_WORDS = {
    401: ("unauthorized", "The pool does not know your token.", "Log in again: jupyter gpupool login URL"),
    403: ("forbidden", "The pool does not let you in, or not with this token.", _ADMINISTRATOR),
    404: ("not_found", "There is no pool at this address.", None),
    502: ("service_down", "The pool's service does not answer.", _ADMINISTRATOR),
    503: ("service_down", "The pool's service does not answer.", _ADMINISTRATOR),
    504: ("service_down", "The pool's service does not answer in time.", _ADMINISTRATOR),
}


class Refused(PoolError):  # noqa: N818
    """The client refuses by itself; nothing was sent and nothing changed."""


class ServiceDown(PoolError):  # noqa: N818
    """The service does not answer, after retries."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__("service_down", message, hint=hint)
