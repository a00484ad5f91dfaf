"""The spawner for one host: a lease of the pool, and the launcher that runs the server on it.

Owns: handing what the lease allows to the launcher. Never: either half.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from jupyter_gpupool.spawner.launching import LauncherSpawner, Work
from jupyter_gpupool.spawner.mixin import GpuPoolMixin


class GpuPoolLocalSpawner(GpuPoolMixin, LauncherSpawner):
    """Servers on this host, each on its lease of the pool; ``c.JupyterHub.spawner_class = "gpupool-local"``."""

    def take_work(self, reply: dict[str, Any]) -> None:
        """Run what the lease allows; fields of a newer service are left out."""
        self.work = Work(**{field.name: reply["work"][field.name] for field in fields(Work)})
