"""A shared GPU pool for Jupyter: slices within quota, and detached jobs in one priority queue.

Owns: the names people import and the hooks by which IPython, Jupyter Server and JupyterLab find
the package. Never: work at import; every name is loaded when it is first used, so that a job in a
bare Python 3.9 can call `should_stop()` without any of the dependencies.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .client.jobside import checkpoint_dir, progress, should_stop
    from .notebook.api import Array, Job, job, submit

__all__ = ["Array", "Job", "__version__", "checkpoint_dir", "job", "progress", "should_stop", "submit"]

_HOME_OF = {
    "Array": "notebook.api",
    "Job": "notebook.api",
    "checkpoint_dir": "client.jobside",
    "job": "notebook.api",
    "progress": "client.jobside",
    "should_stop": "client.jobside",
    "submit": "notebook.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})


def load_ipython_extension(ipython: Any) -> None:
    """Register the magics: ``%load_ext jupyter_gpupool``."""
    from .notebook.magics import load

    load(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """Take the magics away again: ``%unload_ext jupyter_gpupool``."""
    from .notebook.magics import unload

    unload(ipython)


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    return [{"src": "labextension", "dest": "jupyter-gpupool"}]


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    from . import server

    return server._jupyter_server_extension_points()
