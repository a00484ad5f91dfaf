"""Objects of a session as bytes that a job can read: named variables, or a function with its arguments.

Owns: pickling, and naming the one object that cannot be pickled. Never: unpickling.
"""

from __future__ import annotations

import importlib
import importlib.util
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from jupyter_gpupool.client.errors import Refused

PROTOCOL = 5  # the newest that Python 3.9 reads


def pickle_variables(names: Iterable[str], namespace: Mapping[str, Any]) -> bytes:
    """Return the pickle of a dict of variables.

    Raises
    ------
    Refused
        When one does not exist or cannot be pickled; it is named.
    """
    names = list(names)
    for name in names:
        if name not in namespace:
            raise Refused("not_found", f"--send {name}: there is no variable {name!r} here.")
    variables = {name: namespace[name] for name in names}
    dumps = pickler()
    try:
        return dumps(variables)
    except Exception as error:
        culprits = ((f"The variable {name!r}", value) for name, value in variables.items())
        raise _refusal(culprits, "What --send names", error) from error


def pickle_call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
    """Return the pickle of (function, args, kwargs), with the function's code where it is not importable.

    Raises
    ------
    Refused
        When cloudpickle is not installed here, or an object cannot be pickled; it is named.
    """
    if importlib.util.find_spec("cloudpickle") is None:
        raise Refused(
            "not_picklable",
            "Functions are sent with cloudpickle, which this Python does not have.",
            hint="Install it (pip install cloudpickle), or submit a script.",
        )
    try:
        return pickler()((function, args, dict(kwargs)))
    except Exception as error:
        name = name_of(function)
        raise _refusal(_parts(function, args, kwargs, name), f"The function {name!r}", error) from error


def pickler() -> Callable[[Any], bytes]:
    """Return cloudpickle's `dumps` where it is installed, else pickle's."""
    try:
        dumps = importlib.import_module("cloudpickle").dumps
    except ImportError:
        dumps = pickle.dumps
    return lambda value: bytes(dumps(value, protocol=PROTOCOL))


def name_of(function: Callable[..., Any]) -> str:
    """Return a function's name, or its type's where it has none."""
    return str(getattr(function, "__name__", type(function).__name__))


def used_globals(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the global and enclosing variables that a function's code names."""
    code = getattr(function, "__code__", None)
    if code is None:
        return {}
    known = getattr(function, "__globals__", {})
    names = {name for part in code_parts(code) for name in part.co_names}
    found = {name: known[name] for name in sorted(names) if name in known}
    cells = zip(code.co_freevars, getattr(function, "__closure__", None) or ())
    return {**found, **{name: cell.cell_contents for name, cell in cells if _is_set(cell)}}


def code_parts(code: Any) -> Iterator[Any]:
    """Yield a code object and those of the functions defined in it."""
    yield code
    for constant in code.co_consts:
        if hasattr(constant, "co_code"):
            yield from code_parts(constant)


def _parts(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str
) -> Iterator[tuple[str, Any]]:
    for position, value in enumerate(args, 1):
        yield f"Argument {position} of {name!r}", value
    for keyword, value in kwargs.items():
        yield f"The argument {keyword!r} of {name!r}", value
    for variable, value in used_globals(function).items():
        yield f"The variable {variable!r} that {name!r} uses", value


def _refusal(parts: Iterable[tuple[str, Any]], whole: str, error: Exception) -> Refused:
    """Name the first part that cannot be pickled by itself."""
    for what, value in parts:
        own = _problem(value)
        if own is not None:
            whole, error = f"{what} (a {type(value).__name__})", own
            break
    because = " ".join(str(error).split()).rstrip(".")
    return Refused(
        "not_picklable", f"{whole} cannot be pickled: {because}.", hint="Make it inside the job instead."
    )


def _problem(value: Any) -> Exception | None:
    try:
        pickler()(value)
    except Exception as error:
        return error
    return None


def _is_set(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - raises while nothing was assigned
    except ValueError:
        return False
    return True
