"""The spawner for one host: a lease of the pool, and the launcher that runs the server on it.

Owns: handing what the lease allows to the launcher. Never: either half.
"""

from __future__ import annotations

from jupyter_gpupool.spawner.answers import Work
from jupyter_gpupool.spawner.launching import LauncherSpawner
from jupyter_gpupool.spawner.mixin import GpuPoolMixin


class GpuPoolLocalSpawner(GpuPoolMixin, LauncherSpawner):
    """Servers on this host, each on its lease of the pool; ``gpupool-local`` by its entry point."""

    reads_options = False

    def take_work(self, work: Work) -> None:
        """Run what the lease allows."""
        self.work = work
