"""The ready configurations that come with this package: a demo, and one for a server with GPUs.

Owns: where they are, installed or in a checkout. Never: what is in them.
"""

from __future__ import annotations

from pathlib import Path

from jupyter_gpupool.client.errors import Refused


def ready_files(name: str) -> Path:
    """Return the folder of the configuration `name`.

    Raises
    ------
    Refused
        This installation lacks it.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "hub_config" / name, package.parent / "hub_config" / name):
        if folder.is_dir():
            return folder
    raise Refused(
        "incomplete",
        f"The files of the {name} are missing from this installation.",
        hint="Install jupyter-gpupool again.",
    )
