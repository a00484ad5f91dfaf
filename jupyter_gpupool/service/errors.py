"""The one shape in which every face learns what went wrong.

Owns: `ApiError`, its JSON form, and the refusals that many handlers share. Never: a traceback, or status
500 for something the user can put right.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from typing_extensions import TypedDict


class ErrorBody(TypedDict):
    """What went wrong: one sentence, its numbers, and what to do."""

    code: str
    message: str
    used: int | None
    limit: int | None
    unit: str | None
    retry_at: str | None
    hint: str | None


class ErrorReply(TypedDict):
    """The body of every reply that is not a success."""

    error: ErrorBody


@dataclass(eq=False)
class ApiError(Exception):
    """A request that is refused.

    Parameters
    ----------
    status
        The HTTP status: 400, 403, 404, 409, 413, 422, 503 or 507.
    code
        Snake-case name for programs.
    message
        One sentence for people: what is wrong, with the numbers.
    hint
        What to do about it.
    """

    status: int
    code: str
    message: str
    used: int | None = None
    limit: int | None = None
    unit: str | None = None
    retry_at: str | None = None
    hint: str | None = None

    def __str__(self) -> str:
        return self.message

    def reply(self) -> ErrorReply:
        """Return the JSON body."""
        found = asdict(self)
        found.pop("status")
        return {"error": found}  # type: ignore[typeddict-item]


def invalid(message: str, hint: str | None = None, code: str = "invalid_option") -> ApiError:
    """Build the refusal of a value that the user can correct."""
    return ApiError(422, code, message, hint=hint)


def not_found(what: str, hint: str | None = None) -> ApiError:
    """Build the refusal of a thing that is not there, or not for this user to see."""
    return ApiError(404, "not_found", f"There is no {what}.", hint=hint)


def conflict(message: str, hint: str | None = None) -> ApiError:
    """Build the refusal of a step that the thing's present state does not allow."""
    return ApiError(409, "conflict", message, hint=hint)


def forbidden(message: str) -> ApiError:
    """Build the refusal of somebody who may not do this."""
    return ApiError(403, "forbidden", message)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that looks most like `name`, if one does."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)), None)
