"""The local code that a function of a session needs.

Owns: following a function's imports, the globals it uses and the types of its arguments to modules that
are files of the user's. Never: their contents; see `jupyter_gpupool.client.modules`.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from jupyter_gpupool.client.modules import Import, is_installed, module_root
from jupyter_gpupool.client.payload import code_parts, used_globals

OURS = frozenset({"jupyter_gpupool", "gpupool_job"})


def local_code(
    function: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
) -> tuple[list[Import], list[Path]]:
    """Return what must be importable for a function to run, and the folders where it is now."""
    names = set(_modules_of(function, set()))
    for value in (*args, *(kwargs or {}).values()):
        names.add(getattr(value, "__module__", None) or type(value).__module__)
    own = {name for name in names if name.partition(".")[0] not in OURS and name != "__main__"}
    roots = {root for root in map(local_root, own) if root is not None}
    return [Import(name) for name in sorted(own)], sorted(roots)


def local_root(name: str) -> Path | None:
    """Return the folder that a loaded module was imported from, if it is a file of the user's."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if not file or is_installed(Path(file)):
        return None
    return module_root(Path(file), name)


def _modules_of(value: Any, seen: set[int]) -> Iterator[str]:
    """Yield the names of modules that a function, or what it uses, refers to."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, ModuleType):
        yield value.__name__
        return
    yield getattr(value, "__module__", None) or type(value).__module__
    code = getattr(value, "__code__", None)
    if code is not None and value.__module__ == "__main__":
        for part in code_parts(code):
            yield from _imports_in(part)
        for used in used_globals(value).values():
            yield from _modules_of(used, seen)


def _imports_in(code: Any) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            yield str(instruction.argval)
