"""Notebook files, read as JSON.

Owns: checking that a file is a notebook, and finding its kernel and its Python code. Never: running it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.client.modules import python_lines


@dataclass(frozen=True)
class Notebook:
    """A notebook's bytes, the name of its kernel, and the Python of its code cells."""

    content: bytes
    kernel: str | None
    code: str


def read(path: Path) -> Notebook:
    """Read a notebook.

    Raises
    ------
    Refused
        When the file is no notebook of format 4.
    """
    content = path.read_bytes()
    try:
        data: dict[str, Any] = json.loads(content)
        if data["nbformat"] != 4:
            raise Refused(
                "invalid_notebook",
                f"{path} has the notebook format {data['nbformat']}; jobs run format 4.",
                hint="Open and save it in JupyterLab.",
            )
        cells = [cell for cell in data["cells"] if cell["cell_type"] == "code"]
        sources = ["".join(cell["source"]) for cell in cells]
        kernel = data.get("metadata", {}).get("kernelspec", {}).get("name")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Refused("invalid_notebook", f"{path} is not a notebook.") from None
    return Notebook(content, kernel, python_code(sources))


def python_code(sources: list[str]) -> str:
    """Return the cells that parse as Python once IPython's lines are blanked, as one text."""
    return "\n".join(text for text in map(python_lines, sources) if _parses(text))


def _parses(text: str) -> bool:
    try:
        compile(text, "<cell>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True
