"""Which local modules a piece of Python code imports, transitively.

Owns: reading imports out of source (never running it) and finding them beside the script and under the
working folder. Never: what is installed; that belongs to the interpreter.
"""

from __future__ import annotations

import ast
import re
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_IPYTHON_LINE = re.compile(r"(?m)^([ \t]*)(?:[\w ,.\[\]'\"\t]+=[ \t]*)?[%!].*$")
INSTALLED = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True)
class Import:
    """One imported name: ``from ..a import b`` is level 2, module ``a``, names ``b``."""

    module: str
    names: tuple[str, ...] = ()
    level: int = 0


def imports(source: str) -> list[Import]:
    """Return what `source` imports anywhere in it; nothing where it does not parse."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    return list(_imports_of(tree))


def python_lines(source: str) -> str:
    """Return a cell's source with its lines of IPython syntax blanked, so that the rest can be parsed."""
    return _IPYTHON_LINE.sub(r"\1pass", source)


def local_modules(found: Iterable[Import], roots: Iterable[Path]) -> dict[Path, Path]:
    """Return the files of all local modules that `found` leads to, each with the root it was found under.

    Parameters
    ----------
    found : iterable of Import
        The imports to start from; relative ones count from each root.
    roots : iterable of Path
        Where modules may lie, first match first.
    """
    search = list(dict.fromkeys(roots))
    files: dict[Path, Path] = {}
    waiting = [(root, root, item) for root in search[:1] for item in found]
    while waiting:
        root, package, item = waiting.pop()
        for base, path in _files_of(item, package, search if item.level == 0 else [root]):
            if path not in files:
                files[path] = base
                waiting += [(base, path.parent, further) for further in imports(_read(path))]
    return files


def module_root(file: Path, module: str) -> Path:
    """Return the folder from which `module` was imported, given its file."""
    depth = module.count(".") + (1 if file.name == "__init__.py" else 0)
    return file.parents[depth]


def is_installed(path: Path) -> bool:
    """Tell whether a file belongs to this interpreter rather than to the user."""
    library = Path(sysconfig.get_paths()["stdlib"])
    return not INSTALLED.isdisjoint(path.parts) or library in path.parents


def _imports_of(tree: ast.AST) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name)
        elif isinstance(node, ast.ImportFrom):
            yield Import(node.module or "", tuple(alias.name for alias in node.names), node.level)
        elif isinstance(node, ast.Call) and _name_of(node.func) in ("import_module", "__import__"):
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield Import(first.value)


def _name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _files_of(item: Import, package: Path, roots: list[Path]) -> Iterator[tuple[Path, Path]]:
    """Yield (root, file) for a module, the packages around it, and the submodules it names."""
    for root in roots:
        start = root
        if item.level:
            climbed = [package, *package.parents]
            start = climbed[min(item.level, len(climbed)) - 1]
        parts = item.module.split(".") if item.module else []
        files = _chain(start, parts)
        for name in item.names:
            files += _chain(start, [*parts, *name.split(".")])
        if files:
            yield from ((root, path) for path in files)
            return


def _chain(start: Path, parts: list[str]) -> list[Path]:
    """Return the files that importing ``a.b.c`` under `start` reads, as far as they are there."""
    files: list[Path] = []
    place = start
    for part in parts:
        if (place / part / "__init__.py").is_file():
            place = place / part
            files.append(place / "__init__.py")
        elif (place / f"{part}.py").is_file():
            files.append(place / f"{part}.py")
            break
        else:
            place = place / part  # a namespace package has no file of its own
    return files


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
