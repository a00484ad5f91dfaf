"""Who is looking: when a job can be shown alive, and when anybody would read what is printed.

Owns: the one live view of each job in this kernel. Never: what a view shows.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.tasks import is_job

VIEW = "application/vnd.jupyter.widget-view+json"
_views: dict[int, Any] = {}


def mimebundle(client: Client, job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the display data of a live view; empty where there can be none, as of an array.

    One job has one live view: an older one is closed.
    """
    if not in_kernel() or not is_job(job):
        return {}
    try:
        from jupyter_gpupool.notebook.widget import JobView
    except ImportError:
        return {}
    earlier = _views.pop(job["id"], None)
    if earlier is not None:
        earlier.close()
    view = _views[job["id"]] = JobView(client, job)
    return {VIEW: {"version_major": 2, "version_minor": 0, "model_id": view.model_id}}


def in_kernel() -> bool:
    """Tell whether this code runs in a Jupyter kernel, whose displays reach a browser."""
    return getattr(_shell(), "kernel", None) is not None


def is_interactive() -> bool:
    """Tell whether somebody types what runs: in IPython, a notebook, or Python's own prompt."""
    return _shell() is not None or hasattr(sys, "ps1")


def _shell() -> Any:
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython else None
