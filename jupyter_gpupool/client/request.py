"""From what a person asks for to what the service is sent: one function for each kind of work.

Owns: the body of a submit, what goes into its snapshot, and the receipt. Never: sending it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_gpupool.client import config, environment, interpreter, notebooks, payload, snapshot, tasks
from jupyter_gpupool.client.cells import check_cell
from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.client.functions import local_code
from jupyter_gpupool.client.interpreter import Interpreter
from jupyter_gpupool.client.modules import imports, python_lines
from jupyter_gpupool.client.options import Options
from jupyter_gpupool.client.snapshot import Collection
from jupyter_gpupool.client.tarball import RESERVED, Content, Snapshot

RESOURCES = ("gpus", "gpu_memory", "gpu_type", "gpu_compute", "cpus", "mem")
AS_GIVEN = (
    *("time", "grace", "priority", "window", "partition", "group", "resumable"),
    *("array", "after", "after_any", "retries", "notify"),
)
SPECIAL = {"send": "cell", "fetch": "cell", "parameters": "notebook"}  # option: the one kind that has it
RUNNING = (sys.version_info[0], sys.version_info[1])


@dataclass(frozen=True)
class Here:
    """Where a request is made: the environment and the working folder."""

    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    cwd: Path = field(default_factory=lambda: _working_folder())


@dataclass(frozen=True)
class Prepared:
    """A request ready to be sent.

    Attributes
    ----------
    body : dict
        What ``POST jobs`` takes.
    snapshot : Snapshot or None
        The code it refers to.
    taken : str
        What the job gets, for the receipt.
    held_back : tuple of str
        Variables that look like credentials and stay here.
    """

    body: dict[str, Any]
    snapshot: Snapshot | None
    taken: str
    held_back: tuple[str, ...]


def prepare_script(
    path: str, args: Sequence[str] = (), options: Options | None = None, here: Here | None = None
) -> Prepared:
    """Prepare a script with its arguments; local modules it imports come along.

    Raises
    ------
    Refused
        When the script is missing, is no regular file or lies behind a link that leads outside, when too
        much would be taken, or an option does not fit.
    """
    options, here = options or {}, here or Here()
    check_options(options, "script")
    script, root, name = snapshot.locate_script(path, here.cwd)
    python = _interpreter(options, here)
    if options.get("no_snapshot"):
        entry = {"script": str(script), "args": list(args)}
        return _prepared(
            "script", script.name, entry, None, f"{name} as it will be then", python, options, here
        )
    files = _files(options, here)
    if here.cwd not in script.parents and options.get("workdir") == "snapshot":
        raise Refused("invalid_script", f"{script} is not in the folder that --workdir snapshot copies.")
    snapshot.add_script(files, script, root, here.cwd)
    entry = {"script": name, "args": list(args)}
    return _prepared("script", script.name, entry, files, name, python, options, here)


def prepare_cell(
    source: str,
    namespace: Mapping[str, Any] | None = None,
    options: Options | None = None,
    here: Here | None = None,
) -> Prepared:
    """Prepare a cell's source, with the variables that ``send`` names out of `namespace`.

    Raises
    ------
    Refused
        When the cell cannot run in the interpreter chosen (the line is named), or a variable cannot be
        pickled (it is named).
    """
    options, here = options or {}, here or Here()
    check_options(options, "cell")
    python = _interpreter(options, here)
    needs_ipython = check_cell(source, python, RUNNING)
    send, fetch = options.get("send", []), options.get("fetch", [])
    for name in fetch:
        if not name.isidentifier():
            raise Refused("invalid_option", f"--fetch {name}: this is not the name of a variable.")
    files = _files(options, here)
    snapshot.add_modules(files, imports(python_lines(source)), [here.cwd], here.cwd)
    _reserve(files, "cell.py", source.encode("utf-8"))
    what = "the cell"
    if send:
        _check_same_python(python, "Variables")
        _reserve(files, "sent.pkl", payload.pickle_variables(send, namespace or {}))
        what += f" with {', '.join(send)}"
    entry = {"fetch": list(fetch), "sent": bool(send), "ipython": needs_ipython}
    return _prepared("cell", "cell", entry, files, what, python, options, here)


def prepare_notebook(path: str, options: Options | None = None, here: Here | None = None) -> Prepared:
    """Prepare a notebook with the values that ``parameters`` holds; local modules it imports come along.

    Raises
    ------
    Refused
        When the file is no notebook, or its kernel does not exist.
    """
    options, here = options or {}, here or Here()
    check_options(options, "notebook")
    file, _, _ = snapshot.locate_script(path, here.cwd)
    notebook = notebooks.read(file)
    kernel = options.get("kernel") or notebook.kernel or "python3"
    python = interpreter.choose(kernel=kernel, environ=here.environ, cwd=here.cwd)
    files = _files(options, here)
    snapshot.add_modules(files, imports(notebook.code), [file.parent, here.cwd], file.parent)
    parameters = dict(options.get("parameters", {}))
    _reserve(files, "notebook.ipynb", notebook.content)
    entry = {"notebook": file.name, "parameters": parameters, "kernel": kernel}
    return _prepared("notebook", file.name, entry, files, file.name, python, options, here)


def prepare_function(
    function: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    options: Options | None = None,
    here: Here | None = None,
) -> Prepared:
    """Prepare a call of a function of this session; local modules it uses come along.

    Raises
    ------
    Refused
        When something cannot be pickled (it is named), or the job's Python cannot read the pickle.
    """
    options, here = options or {}, here or Here()
    check_options(options, "function")
    python = _interpreter(options, here)
    _check_same_python(python, "Functions")
    if "cloudpickle" not in python.modules:
        raise Refused(
            "invalid_python",
            f"{python.python} has no cloudpickle, which functions need.",
            hint="Install it there.",
        )
    name = payload.name_of(function)
    needed, roots = local_code(function, args, kwargs)
    files = _files(options, here)
    snapshot.add_modules(files, needed, [*roots, here.cwd], here.cwd)
    _reserve(files, "function.pkl", payload.pickle_call(function, args, kwargs or {}))
    return _prepared("function", name, {"name": name}, files, f"the function {name}", python, options, here)


def prepare_command(
    argv: Sequence[str], options: Options | None = None, here: Here | None = None
) -> Prepared:
    """Prepare a program with its arguments; with ``workdir`` = snapshot the folder comes along.

    Raises
    ------
    Refused
        When there is no program, or too much would be taken.
    """
    options, here = options or {}, here or Here()
    check_options(options, "command")
    if not argv:
        raise Refused("invalid_option", "There is no command to run.")
    python = _interpreter(options, here)
    files = _files(options, here) if options.get("workdir") == "snapshot" else None
    name = os.path.basename(argv[0])
    what = f"the command {name}"
    return _prepared("command", name, {"argv": list(argv)}, files, what, python, options, here)


def check_options(options: Options, kind: str) -> None:
    """Refuse options that a kind of work does not have.

    Raises
    ------
    Refused
        With the option and the kind that has it.
    """
    for name, owner in SPECIAL.items():
        if options.get(name) and kind != owner:
            flag = "-p" if name == "parameters" else f"--{name}"
            raise Refused("invalid_option", f"{flag} is for a {owner}; this is a {kind}.")
    if options.get("no_snapshot") and kind not in ("script", "command"):
        raise Refused("invalid_option", f"--no-snapshot is for a script; a {kind} has no file of its own.")
    if options.get("no_snapshot") and options.get("workdir") == "snapshot":
        raise Refused("invalid_option", "--no-snapshot and --workdir snapshot exclude each other.")
    for name in ("python", "kernel"):
        if options.get(name) and kind == "command":
            raise Refused(
                "invalid_option", f"A command names its own program: leave --{name} out, or submit a script."
            )
    if options.get("python") and kind == "notebook":
        raise Refused(
            "invalid_option", "A notebook runs in a kernel.", hint="Use --kernel instead of --python."
        )


def receipt_lines(reply: Mapping[str, Any], taken: str, held_back: Iterable[str]) -> list[str]:
    """Return what a submit prints: what was taken, what was held back, where output goes.

    Parameters
    ----------
    reply : mapping
        The job, as the service answered.
    taken, held_back
        See `Prepared`.
    """
    names = list(held_back)
    if len(names) == 1:
        because = f" (looks like a credential; --env {names[0]} sends it)"
    else:
        because = " (look like credentials; --env NAME sends one)" if names else ""
    simulated = " (simulated cards)" if reply.get("simulated") else ""
    where = f"Output goes to {reply['out']}, the log to {reply['log']}."
    array = reply.get("array")
    if array:
        first = f"{reply['id']}[{tasks.numbers(array['tasks'])[0]}]"
        where = f"It has {tasks.tasks_text(array)}. Each has an output and a log of its own, such as {first}."
    return [
        f"{tasks.title(reply)}{simulated} took {taken}.",
        f"Held back: {', '.join(names) or 'nothing'}{because}.",
        where,
        *(f"Note: {warning}" for warning in reply.get("warnings") or ()),
    ]


def _working_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise Refused(
            "invalid_folder", "The working folder is no longer there.", hint="Change to another."
        ) from None


def _prepared(
    kind: str,
    name: str,
    entry: dict[str, Any],
    files: Collection | None,
    what: str,
    python: Interpreter,
    options: Options,
    here: Here,
) -> Prepared:
    """Put together what all kinds have in common."""
    variables, held_back = environment.captured(
        here.environ, options.get("env", ()), config.always_send(here.environ)
    )
    packed = files.pack() if files is not None else None
    git = interpreter.git_state(here.cwd)
    body = {
        "kind": kind,
        "name": options.get("name") or name,
        "entry": entry,
        "resources": {name: options[name] for name in RESOURCES if name in options},
        **({"notify": list(usual)} if (usual := config.notify(here.environ)) else {}),
        **{name: options[name] for name in AS_GIVEN if name in options},
        "workdir": str(here.cwd),
        "workdir_mode": options.get("workdir", "here"),
        "snapshot": packed.sha256 if packed else None,
        "environment": variables,
        "held_back": held_back,
        "interpreter": python.as_dict(),
        "provenance": {"git": git},
    }
    taken = [_files_text(what, packed, options), f"{len(variables)} variables", _python_text(python)]
    if git:
        taken.append(f"commit {git['commit'][:7]}{' with changes' if git['dirty'] else ''}")
    return Prepared(body, packed, ", ".join(taken), tuple(held_back))


def _files(options: Options, here: Here) -> Collection:
    files = snapshot.collection(here.environ)
    if options.get("workdir") == "snapshot":
        snapshot.add_folder(files, here.cwd)
    return files


def _interpreter(options: Options, here: Here) -> Interpreter:
    return interpreter.choose(
        python=options.get("python"), kernel=options.get("kernel"), environ=here.environ, cwd=here.cwd
    )


def _reserve(files: Collection, name: str, data: bytes) -> None:
    files.add(f"{RESERVED}/{name}", Content(data))


def _check_same_python(python: Interpreter, what: str) -> None:
    if python.minor != RUNNING:
        raise Refused(
            "invalid_python",
            f"{what} travel between equal versions of Python only: this is {RUNNING[0]}.{RUNNING[1]}, "
            f"{python.python} is {python.version}.",
            hint="Submit a script, or choose another interpreter with --kernel or --python.",
        )


def _files_text(what: str, packed: Snapshot | None, options: Options) -> str:
    if packed is None:
        return what
    count = len(packed.own_files)
    if options.get("workdir") == "snapshot":
        along = f" and the folder's {count} files" if count != 1 else " and the folder's one file"
    else:
        modules = count - (1 if what in packed.own_files else 0)
        along = f" and {modules} local module{'s' if modules != 1 else ''}" if modules else ""
    return f"{what}{along} ({snapshot.size_text(packed.size)})"


def _python_text(python: Interpreter) -> str:
    where = f"kernel {python.kernel}" if python.kernel else python.python
    return f"Python {python.version} ({where})"
