"""Run one notebook cell as a job, in the user's interpreter.

Owns: giving the cell its variables, running it as a notebook would, and saving those to bring back.
Never: an import of anything but the standard library (cloudpickle and IPython where they are there).
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import importlib
import inspect
import json
import os
import pickle
import sys
import traceback
import types
from typing import Any, Callable


class CellError(Exception):
    """The cell cannot be run, or its variables cannot be carried; the text is for its owner."""


def main() -> int:
    """Run the cell that the snapshot holds; return the exit code."""
    set_path()
    folder = os.path.join(os.environ["GPUPOOL_CODE_DIR"], ".gpupool")
    entry = json.loads(os.environ["GPUPOOL_ENTRY"])
    source = os.path.join(folder, "cell.py")
    namespace = new_main()
    try:
        if entry["sent"]:
            namespace.update(read_sent(os.path.join(folder, "sent.pkl")))
        done = (run_in_ipython if entry["ipython"] else run)(source, namespace)
        if done and entry["fetch"]:
            save(entry["fetch"], namespace, os.path.join(os.environ["GPUPOOL_OUT_DIR"], "fetched.pkl"))
    except CellError as error:
        print(error, file=sys.stderr)
        return 1
    return 0 if done else 1


def set_path() -> None:
    """Search modules as a notebook does, the snapshot before the working folder."""
    if sys.path and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
        del sys.path[0]
    sys.path.append("")


def new_main() -> dict[str, object]:
    """Return the namespace of a fresh ``__main__``, so that what the cell defines can be pickled."""
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = module
    sys.argv[:] = [""]
    return module.__dict__


def read_sent(path: str) -> dict[str, object]:
    """Return the variables that were sent along."""
    try:
        with open(path, "rb") as file:
            sent: dict[str, object] = pickle.load(file)
            return sent
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise CellError(f"The variables sent cannot be read in this Python. {problem}") from error


def run(path: str, namespace: dict[str, object]) -> bool:
    """Run a cell of plain Python; show the value of a last expression; return whether it succeeded."""
    with open(path, encoding="utf-8") as file:
        source = file.read()
    try:
        steps = compiled(source, path)
        if any(step.co_flags & inspect.CO_COROUTINE for step in steps):
            asyncio.run(run_awaiting(steps, namespace))
        else:
            for step in steps:
                exec(step, namespace)
    except SystemExit:
        raise
    except BaseException:
        show_error(path)
        return False
    return True


def compiled(source: str, path: str) -> list[types.CodeType]:
    """Compile a cell; a last expression becomes a step of its own, whose value is shown."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = compile(source, path, "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    steps = [compile(tree, path, "exec", flags, dont_inherit=True)]
    if last is not None:
        quiet = source.rstrip().endswith(";")
        shown = ast.Module([last], []) if quiet else ast.Interactive([last])
        steps.append(compile(shown, path, "exec" if quiet else "single", flags, dont_inherit=True))
    return steps


async def run_awaiting(steps: list[types.CodeType], namespace: dict[str, object]) -> None:
    """Run a cell that awaits at its top level."""
    for step in steps:
        result = eval(step, namespace)
        if inspect.iscoroutine(result):
            await result


def run_in_ipython(path: str, namespace: dict[str, object]) -> bool:
    """Run a cell that uses magics or shell commands in a shell of IPython that keeps no history."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    shell: Any = InteractiveShell.instance(config=config, user_module=sys.modules["__main__"])
    with open(path, encoding="utf-8") as file:
        return bool(shell.run_cell(file.read(), store_history=False).success)


def show_error(path: str) -> None:
    """Print the traceback of the cell's own error, without the frames of this file."""
    kind, value, trace = sys.exc_info()
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    sys.stdout.flush()
    traceback.print_exception(kind, value, trace)


def save(names: list[str], namespace: dict[str, object], path: str) -> None:
    """Save the variables to bring back: all of them, or nothing."""
    missing = [name for name in names if name not in namespace]
    if missing:
        raise CellError(f"The cell ran, but there is no variable {missing[0]!r} to bring back.")
    dumps = pickler()
    variables = {name: namespace[name] for name in names}
    try:
        data = dumps(variables)
    except Exception as error:
        culprit = next((name for name in names if not picklable(variables[name], dumps)), names[0])
        raise CellError(
            f"The cell ran, but {culprit!r} cannot be pickled to bring it back: {error}."
        ) from error
    beside = f"{path}.{os.getpid()}"
    with open(beside, "wb") as file:
        file.write(data)
    os.replace(beside, path)


def pickler() -> Callable[[object], bytes]:
    """Return cloudpickle's `dumps` where it is installed, else pickle's."""
    try:
        dumps: Callable[[object], bytes] = importlib.import_module("cloudpickle").dumps
        return dumps
    except ImportError:
        return pickle.dumps


def picklable(value: object, dumps: Callable[[object], bytes]) -> bool:
    """Tell whether a value can be pickled by itself."""
    try:
        dumps(value)
    except Exception:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
