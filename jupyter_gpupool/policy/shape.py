"""What pydantic finds wrong, in our words.

Owns: one sentence and one remedy per kind of shape error. Never: lines (see `problems`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, get_args, get_origin

from pydantic_core import ErrorDetails

from jupyter_gpupool.policy.model import Policy, Section
from jupyter_gpupool.policy.problems import Finding, Path, SourceMap, one_of
from jupyter_gpupool.policy.units import UnitError

_FORMS = {
    "bool_parsing": ("is not true or false.", "Write true or false."),
    "bool_type": ("is not true or false.", "Write true or false."),
    "dict_type": ("is not a set of keys.", "Write `key: value` lines below it, or {key: value}."),
    "model_type": ("is not a set of keys.", "Write `key: value` lines below it, or {key: value}."),
    "tuple_type": ("is not a list.", "Write it in brackets: [one, two]."),
    "string_type": ("is not a text.", "Write one name or text."),
    "int_parsing": ("is not a whole number.", "Write a whole number such as 100 or -100."),
    "int_type": ("is not a whole number.", "Write a whole number such as 100 or -100."),
}


def findings(errors: Sequence[ErrorDetails], source: SourceMap) -> list[Finding]:
    """Return what pydantic's errors say, each at the key it is about."""
    # A list whose items are all wrong also counts as too short: that is no second mistake.
    return [
        _finding(error, source) for error in errors if not (error["type"] == "too_short" and error["input"])
    ]


def _finding(error: ErrorDetails, source: SourceMap) -> Finding:
    kind, given = error["type"], error["input"]
    path, _ = source.locate(error["loc"])
    if kind == "missing":
        name = str(error["loc"][-1])
        return Finding((*path, name), "this key is missing.", f'Add "{name}:" with its value.')
    if kind == "extra_forbidden":
        return Finding(path, f'"{path[-1]}" is not a key here.', one_of(str(path[-1]), _keys_at(path[:-1])))
    if given is None:
        return Finding(path, "nothing is written here.", "Write its value, or remove the key.")
    if kind == "value_error":
        wrong = error["ctx"]["error"]
        return (
            Finding(path, wrong.message, wrong.remedy) if isinstance(wrong, UnitError) else _said(path, error)
        )
    if kind == "literal_error":
        values = re.findall(r"'([^']*)'", str(error["ctx"]["expected"]))
        return Finding(path, f'"{given}" is not a value it can have.', one_of(str(given), values))
    if kind in ("too_short", "string_too_short"):
        return Finding(path, "it is empty.", "Write at least one.")
    if kind in _FORMS:
        message, remedy = _FORMS[kind]
        return Finding(path, f"{_shown(given)} {message}", remedy)
    return _said(path, error)


def _said(path: Path, error: ErrorDetails) -> Finding:
    return Finding(path, f"{_shown(error['input'])}: {error['msg']}.", "Write another value.")


def _shown(given: object) -> str:
    if isinstance(given, dict):
        return "a set of keys"
    return "a list" if isinstance(given, list) else f'"{given}"'


def _keys_at(path: Path) -> list[str]:
    """Return the keys that the file may have at a path."""
    section: type[Section] = Policy
    elements = iter(path)
    for element in elements:
        annotation = _fields(section).get(str(element))
        inner = _section_in(annotation)
        if inner is None:
            break
        section = inner
        if _has_names(annotation):
            next(elements, None)
    return list(_fields(section))


def _fields(section: type[Section]) -> dict[str, Any]:
    return {field.alias or name: field.annotation for name, field in section.model_fields.items()}


def _section_in(annotation: Any) -> type[Section] | None:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next((found for part in get_args(annotation) if (found := _section_in(part))), None)


def _has_names(annotation: Any) -> bool:
    """Whether names or places (of a dict or list) come before the section's keys."""
    return get_origin(annotation) in (dict, tuple)
