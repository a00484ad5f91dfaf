"""What a user chose for a server, whichever way the choice came: form, link, REST, or the last time.

Owns: reading and checking the pool's own options among a server's `user_options`, and reading them from the
form. Never: whether the choice is offered; the service decides that.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from jupyter_gpupool.spawner.refusal import Refusal

WhenFull = Literal["wait", "cpu"]
CPU_ONLY = "0"
FIELDS = ("group", "slice", "partition", "when_full")
PICKED = "gpupool-choice"
"""The form's field for a slice of a group: both, and the partition, as one JSON list."""
SHOWN = "gpupool-shown"
"""The form's field for the group whose slices are shown, which decides nothing."""

_MOST_LETTERS = 255
_EXAMPLES = {"slice": '"1/8", "1" or "0" (CPU only)', "when_full": '"wait" or "cpu"'}


@dataclass(frozen=True, slots=True)
class Choice:
    """What to ask the pool for; None = what the pool takes by default, the smallest slice."""

    group: str | None = None
    slice: str | None = None
    partition: str | None = None
    when_full: WhenFull = "wait"

    @property
    def cpu_only(self) -> Choice:
        """The same without a GPU."""
        return Choice(self.group, CPU_ONLY, None, self.when_full)


def read_choice(options: object, *, alone: bool = False) -> Choice:
    """Read a server's options.

    Parameters
    ----------
    alone : bool
        Whether nobody else on the site reads options: then one that is not ours is a typing error.

    Raises
    ------
    Refusal
        The first option that is no text, too long, or a word that nobody knows.
    """
    if not isinstance(options, Mapping):
        raise _wrong(f"The options of a server must be an object, not {_shown(options)}.")
    for name in without_ours(options) if alone else ():
        guess = difflib.get_close_matches(str(name), FIELDS, 1)
        hint = f"Did you mean {guess[0]}?" if guess else f"Known are {', '.join(FIELDS)}."
        raise _wrong(f"Unknown option {_shown(name)}. {hint}")
    texts = {name: _text(name, options[name]) for name in FIELDS if options.get(name) is not None}
    when_full = texts.pop("when_full", "wait")
    if when_full not in ("wait", "cpu"):
        raise _wrong(f"when_full must be {_EXAMPLES['when_full']}, not {_shown(when_full)}.")
    return Choice(**texts, when_full=when_full)  # type: ignore[arg-type]


def split_form(form: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the pool's options that a form or a link carries, and the fields that are the site's.

    Raises
    ------
    Refusal
        A field came twice, or was not made by our form.
    """
    ours = {name: _only(name, form[name]) for name in FIELDS if name in form}
    if PICKED in form:
        ours |= _picked(_only(PICKED, form[PICKED]))
    site = {name: value for name, value in form.items() if name not in (*FIELDS, PICKED, SHOWN)}
    return {name: value for name, value in ours.items() if value not in ("", None)}, site


def pick(group: str | None, slice_name: str, partition: str | None) -> str:
    """Write one choice as the value of a radio button."""
    return json.dumps([group, slice_name, partition])


def without_ours(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a server's options belongs to the site."""
    return {name: value for name, value in options.items() if name not in FIELDS}


def ours_of(options: object) -> dict[str, Any]:
    """Return what of a server's options belongs to the pool."""
    return {name: options[name] for name in FIELDS if name in options} if isinstance(options, Mapping) else {}


def _picked(value: str) -> dict[str, Any]:
    try:
        group, slice_name, partition = json.loads(value)
    except (ValueError, TypeError):
        raise _wrong(f"The form sent a choice that it did not offer: {_shown(value)}.") from None
    return {"group": group, "slice": slice_name, "partition": partition}


def _only(name: str, values: object) -> Any:
    """Return the one value of a form's field, which arrives as a list."""
    if not isinstance(values, list):
        return values
    if len(values) != 1:
        raise _wrong(f"The option {name} was given {len(values)} times; give it once.")
    return values[0]


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        example = f" such as {_EXAMPLES[name]}" if name in _EXAMPLES else ""
        raise _wrong(f"The option {name} must be text{example}, not {_shown(value)}.")
    if not value.isprintable() or not 0 < len(value) <= _MOST_LETTERS:
        raise _wrong(
            f"The option {name} must be 1 to {_MOST_LETTERS} printable letters, not {_shown(value)}."
        )
    return value


def _shown(value: object) -> str:
    """Quote what somebody sent, short and on one line."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = type(value).__name__
    short = text if len(text) <= 60 else text[:57] + "…"
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in short)


def _wrong(message: str) -> Refusal:
    return Refusal(message, reason="invalid_options", status_code=400)
