"""What kind of code a notebook cell holds.

Owns: telling Python from IPython's additions and from mistakes, before anything is submitted.
Never: running it.
"""

from __future__ import annotations

import ast
import re

from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.client.interpreter import Interpreter

ADDITION = re.compile(r"\s*(?:[\w\s,.\[\]'\"]+=\s*)?[%!]|.*\?\s*$")


def check_cell(source: str, interpreter: Interpreter, running: tuple[int, int]) -> bool:
    """Tell whether a cell needs IPython to run.

    Parameters
    ----------
    running : (major, minor)
        The version of the Python that checks; a job's newer or older syntax is left to the job.

    Raises
    ------
    Refused
        When the cell is empty, is no Python, or needs IPython where there is none; the line is named.
    """
    if not source.strip():
        raise Refused("invalid_cell", "The cell is empty; there is nothing to submit.")
    try:
        compile(source, "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        return False
    except (SyntaxError, ValueError) as error:
        problem = error
    number = first_addition(source)
    if number is None:
        if interpreter.minor != running:
            return False
        line = getattr(problem, "lineno", None)
        where = f"Line {line} of the cell" if line else "The cell"
        raise Refused("invalid_cell", f"{where} is not valid Python: {getattr(problem, 'msg', problem)}.")
    if "IPython" not in interpreter.modules:
        text = source.splitlines()[number - 1].strip()
        raise Refused(
            "invalid_cell",
            f"Line {number} of the cell ({text}) needs IPython, which {interpreter.python} does not have.",
            hint="Install it there, or write the line in Python.",
        )
    return True


def first_addition(source: str) -> int | None:
    """Return the number of the first line that only IPython reads: ``%magic``, ``!command``, ``name?``."""
    for number, line in enumerate(source.splitlines(), 1):
        if ADDITION.match(line):
            return number
    return None
