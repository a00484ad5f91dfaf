"""Which Python runs a job, and what is in it.

Owns: finding the interpreter (this one, a path, a kernel's), its version, a digest of its packages, and
the git commit of the working folder. Never: changing any of them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_gpupool.client.errors import Refused

MINIMUM = (3, 9)
ASK_TIMEOUT = 30.0  # seconds; a cold interpreter on a network disk is slow
GIT_TIMEOUT = 10.0  # seconds

# Runs in any Python 3 by itself, isolated (-I): prints one line of JSON.
ASK = """
import hashlib, importlib.util, json, os, site, sys
if sys.prefix == sys.base_prefix:
    sys.path.append(site.getusersitepackages())
found, folders = [], [path for path in sys.path if os.path.isdir(path)]
for folder in folders:
    for name in os.listdir(folder):
        stem, kind = os.path.splitext(name)
        if kind in (".dist-info", ".egg-info"):
            found.append(stem.lower().replace("_", "-"))
print(json.dumps({
    "python": sys.executable,
    "version": "%d.%d.%d" % sys.version_info[:3],
    "packages": hashlib.sha256("\\n".join(sorted(set(found))).encode()).hexdigest(),
    "modules": [name for name in ("cloudpickle", "IPython") if importlib.util.find_spec(name)],
    "folders": {folder: os.stat(folder).st_mtime_ns for folder in folders},
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python as it is now.

    `packages` is a digest of the installed distributions and their versions; `modules` says which of
    ``cloudpickle`` and ``IPython`` it has.
    """

    python: str
    version: str
    packages: str
    modules: frozenset[str] = frozenset()
    kernel: str | None = None

    @property
    def minor(self) -> tuple[int, int]:
        """Major and minor version: pickled code needs the same one."""
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)

    def as_dict(self) -> dict[str, Any]:
        """Return what the service records."""
        return {
            "python": self.python,
            "kernel": self.kernel,
            "version": self.version,
            "packages": self.packages,
        }


def choose(
    *, python: str | None = None, kernel: str | None = None, environ: Mapping[str, str], cwd: Path
) -> Interpreter:
    """Return the interpreter that the options name; by default the one that runs this.

    Raises
    ------
    Refused
        When both are named, there is no such kernel or file, it is no Python, or it is too old.
    """
    if python and kernel:
        raise Refused("invalid_option", "Give --kernel or --python, not both.")
    if kernel:
        return ask(kernel_python(kernel, environ), kernel=kernel)
    if python:
        named = os.path.expanduser(python)
        found = shutil.which(named, path=environ.get("PATH")) if os.sep not in named else str(cwd / named)
        return ask(found or named)
    return ask(sys.executable)


def ask(python: str, *, kernel: str | None = None) -> Interpreter:
    """Ask an interpreter what it is; the answer is kept as long as its folders do not change.

    Raises
    ------
    Refused
        When it does not answer as a Python of at least 3.9 would.
    """
    path = os.path.abspath(python)
    known = _answers.get(path)
    if known is None or not _still_true(known):
        known = _answers[path] = _ask(path)
    version = known["version"]
    if tuple(map(int, version.split(".")[:2])) < MINIMUM:
        raise Refused("invalid_python", f"{path} is Python {version}; jobs need 3.9 or newer.")
    return Interpreter(path, version, known["packages"], frozenset(known["modules"]), kernel)


def kernel_python(name: str, environ: Mapping[str, str]) -> str:
    """Return the interpreter of a Jupyter kernel, by reading its ``kernel.json``.

    Raises
    ------
    Refused
        When there is no such kernel (those that exist are named) or it is no Python.
    """
    found = kernels(environ)
    if name not in found:
        if name == "python3":
            return sys.executable
        known = ", ".join(sorted(found)) or "none"
        raise Refused("no_such_kernel", f"There is no kernel {name!r}.", hint=f"Kernels found: {known}.")
    try:
        spec = json.loads((found[name] / "kernel.json").read_text(encoding="utf-8"))
        program = str(spec["argv"][0])
        language = str(spec.get("language", "python")).lower()
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        raise Refused("no_such_kernel", f"The kernel {name!r} in {found[name]} cannot be read.") from None
    if language != "python":
        raise Refused("no_such_kernel", f"The kernel {name!r} runs {language}, not Python.")
    if os.path.isabs(program):
        return program
    if program in ("python", "python3", f"python{sys.version_info[0]}.{sys.version_info[1]}"):
        return sys.executable  # as Jupyter itself reads these names
    return shutil.which(program, path=environ.get("PATH")) or program


def kernels(environ: Mapping[str, str]) -> dict[str, Path]:
    """Return the folders of all kernels, by name, as Jupyter looks for them: the first of a name wins."""
    found: dict[str, Path] = {}
    for folder in _data_folders(environ):
        try:
            entries = sorted(os.scandir(folder / "kernels"), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if os.path.isfile(os.path.join(entry.path, "kernel.json")):
                found.setdefault(entry.name.lower(), Path(entry.path))
    return found


def git_state(folder: Path) -> dict[str, Any] | None:
    """Return the commit of the folder's git repository and whether files differ from it, or None."""
    if shutil.which("git") is None:
        return None
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": bool(changes)}


_answers: dict[str, dict[str, Any]] = {}


def _ask(path: str) -> dict[str, Any]:
    problem = "it gave no answer that a Python would give"
    try:
        done = subprocess.run(
            [path, "-I", "-c", ASK],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ASK_TIMEOUT,
            check=True,
        )
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        answer["executable"] = (path, os.stat(path).st_mtime_ns)
        return answer
    except FileNotFoundError:
        problem = "there is no such file"
    except PermissionError:
        problem = "it cannot be executed"
    except subprocess.TimeoutExpired:
        problem = f"it gave no answer in {ASK_TIMEOUT:g} s"
    except (OSError, subprocess.CalledProcessError, ValueError, IndexError):
        pass
    raise Refused(
        "invalid_python", f"{path} cannot run the job: {problem}.", hint="Choose another with --python."
    )


def _still_true(answer: Mapping[str, Any]) -> bool:
    """Tell whether neither the interpreter nor a folder of its packages changed since it answered."""
    path, changed = answer["executable"]
    try:
        return os.stat(path).st_mtime_ns == changed and all(
            os.stat(folder).st_mtime_ns == then for folder, then in answer["folders"].items()
        )
    except OSError:
        return False


def _data_folders(environ: Mapping[str, str]) -> list[Path]:
    """Return Jupyter's data folders: JUPYTER_PATH, the user's, the environment's, the system's."""
    named = [Path(part) for part in environ.get("JUPYTER_PATH", "").split(os.pathsep) if part]
    own = environ.get("JUPYTER_DATA_DIR")
    if own is None and sys.platform == "darwin":
        own = "~/Library/Jupyter"
    elif own is None:
        own = os.path.join(environ.get("XDG_DATA_HOME") or "~/.local/share", "jupyter")
    user = Path(os.path.expanduser(own))
    prefix = Path(sys.prefix, "share", "jupyter")
    return [*named, user, prefix, Path("/usr/local/share/jupyter"), Path("/usr/share/jupyter")]


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_TIMEOUT,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace").strip()
