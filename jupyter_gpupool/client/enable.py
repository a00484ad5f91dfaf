"""Making the job helpers importable in other interpreters.

Owns: the folder ``GPUPOOL_HOME/portable`` and the one ``.pth`` file in another Python that points to it.
Never: installing anything.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from jupyter_gpupool.client import interpreter
from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.client.files import write_whole
from jupyter_gpupool.client.home import Home, private_folder

PTH = "gpupool.pth"
SITE = "import json, sysconfig; print(json.dumps(sysconfig.get_paths()['purelib']))"


def make_portable(home: Home, python: str = sys.executable) -> Path:
    """Make the folder that other interpreters put on their path, and return it.

    It holds links to the installed package and to ``gpupool_job``, and the path of the interpreter that
    can run the service: a job's Python, which has none of its dependencies, starts it with that one.
    """
    package = Path(os.path.abspath(__file__)).parents[1]
    folder = private_folder(home.portable)
    _link(folder / "jupyter_gpupool", package)
    _link(folder / "gpupool_job.py", package / "client" / "portable" / "gpupool_job.py")
    write_whole(folder / "python", f"{python}\n")
    return folder


def recorded_python(home: Home) -> str | None:
    """Return the interpreter that can run the service, if one was recorded and is still there."""
    try:
        python = (home.portable / "python").read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return python if os.access(python, os.X_OK) else None


def enable(python: str, environ: Mapping[str, str]) -> Path:
    """Let `python` import ``jupyter_gpupool`` and ``gpupool_job``; return the one file that was written.

    Raises
    ------
    Refused
        When it is no Python of at least 3.9, or its packages cannot be written.
    """
    found = interpreter.ask(os.path.expanduser(python))
    folder = _site_of(found.python)
    portable = make_portable(Home.of(environ))
    path = folder / PTH
    try:
        write_whole(path, f"{portable}\n")
    except OSError as error:
        raise Refused(
            "unwritable_folder",
            f"The packages of {found.python} in {folder} cannot be written: {error.strerror}.",
            hint="Use an environment of your own, or run this as its owner.",
        ) from error
    return path


def _site_of(python: str) -> Path:
    try:
        done = subprocess.run(
            [python, "-I", "-c", SITE], stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=True
        )
        return Path(json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError):
        raise Refused("invalid_python", f"{python} does not say where its packages are.") from None


def _link(link: Path, target: Path) -> None:
    if os.path.islink(link) and os.readlink(link) == str(target):
        return
    beside = link.with_name(f".{link.name}.{os.getpid()}")
    os.symlink(target, beside)
    os.replace(beside, link)
