"""Call one function as a job, in the user's interpreter.

Owns: reading the call that was pickled, and saving its result whole or not at all. Never: an import of
anything but the standard library by itself.
"""

from __future__ import annotations

import os
import pickle
import sys
import traceback


def main() -> int:
    """Call the function that the snapshot holds; return the exit code."""
    if sys.path and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
        del sys.path[0]
    sys.path.append("")
    sys.argv[:] = [""]
    call = os.path.join(os.environ["GPUPOOL_CODE_DIR"], ".gpupool", "function.pkl")
    try:
        with open(call, "rb") as file:
            function, args, kwargs = pickle.load(file)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        print(f"The function cannot be read in this Python. {problem}", file=sys.stderr)
        return 1
    try:
        result = function(*args, **kwargs)
    except Exception:
        show_error()
        return 1
    try:
        save(result, os.path.join(os.environ["GPUPOOL_OUT_DIR"], "result.pkl"))
    except Exception as error:
        kind = type(result).__name__
        print(f"The function ran, but its result (a {kind}) cannot be pickled: {error}.", file=sys.stderr)
        return 1
    return 0


def show_error() -> None:
    """Print the traceback of the function's own error, without the frame of this file."""
    kind, value, trace = sys.exc_info()
    sys.stdout.flush()
    traceback.print_exception(kind, value, trace.tb_next if trace else None)


def save(result: object, path: str) -> None:
    """Write the result beside its place, then move it there."""
    from cloudpickle import dumps

    data = dumps(result)
    beside = f"{path}.{os.getpid()}"
    with open(beside, "wb") as file:
        file.write(data)
    os.replace(beside, path)


if __name__ == "__main__":
    sys.exit(main())
