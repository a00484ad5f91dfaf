"""YAML text to plain data, with the line of every key.

Owns: what YAML itself can get wrong: tabs, duplicate keys, broken syntax, self-reference.
A scalar stays the text that was written (``20:00``, ``NO`` and ``007`` are not numbers or truths);
only plain ``true``, ``false`` and ``null`` are values. Never: what a key means.
"""

from __future__ import annotations

import yaml

from jupyter_gpupool.policy.problems import Path, Problem, SourceMap, dotted

_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}
_MERGE = "tag:yaml.org,2002:merge"
_MOST_NODES = 100_000


class _Reader:
    def __init__(self) -> None:
        self.lines: dict[Path, int] = {(): 1}
        self.problems: list[Problem] = []
        self._open: set[int] = set()

    def read(self, node: yaml.Node, path: Path) -> object:
        """Return the data of a node, and note the lines of what is in it."""
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        if isinstance(node, yaml.ScalarNode):
            return _WORDS.get(node.value, node.value) if node.style is None else node.value
        if id(node) in self._open or len(self.lines) > _MOST_NODES:
            self._note(line, path, "the aliases (*name) never end.", "Write the values out.")
            return None
        self._open.add(id(node))
        data = self._mapping(node, path) if isinstance(node, yaml.MappingNode) else self._list(node, path)
        self._open.remove(id(node))
        return data

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, object]:
        data: dict[str, object] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = key_node.value
            if not isinstance(key, str):
                self._note(line, path, "a key is a list or mapping.", "Write a name before the colon.")
                continue
            if key_node.tag == _MERGE:
                self._note(line, path, "the merge key << is not read.", "Write the keys out.")
                continue
            here = (*path, key)
            if key in data:
                first = self.lines[here]
                self._note(line, here, f"the key is here twice, first in line {first}.", "Keep one of them.")
                continue
            self.lines[here] = line
            data[key] = self.read(value_node, here)
        return data

    def _list(self, node: yaml.Node, path: Path) -> list[object]:
        return [self.read(item, (*path, place)) for place, item in enumerate(node.value)]

    def _note(self, line: int, path: Path, message: str, remedy: str) -> None:
        self.problems.append(Problem(line, dotted(path), message, remedy))


def read_document(text: str) -> tuple[object, SourceMap, list[Problem]]:
    """Return the data of a YAML text, the lines of its keys, and what is wrong as YAML."""
    reader = _Reader()
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data = reader.read(node, ()) if node is not None else None
    except (yaml.YAMLError, RecursionError) as error:
        return None, SourceMap(), [_syntax_problem(text, error)]
    if node is None:
        reader.problems.append(Problem(1, "", "the file is empty.", "Write partitions and groups."))
    return data, SourceMap(reader.lines), reader.problems


def _syntax_problem(text: str, error: Exception) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        position = getattr(error, "position", 0)
        return Problem(
            text.count("\n", 0, position) + 1,
            "",
            "this is not YAML: it has a character that no text has, or is nested too deeply.",
            "Write it anew in a plain text editor.",
        )
    written = [*text.splitlines(), ""][mark.line]
    if "\t" in written[: mark.column + 1]:
        return Problem(
            mark.line + 1, "", "there is a tab, and YAML has none before a value.", "Write spaces instead."
        )
    said = getattr(error, "problem", None) or "it cannot be read"
    return Problem(
        mark.line + 1,
        "",
        f"this is not YAML: {said} (column {mark.column + 1}).",
        "Check the indentation, quotes and brackets of this line and the one above.",
    )
