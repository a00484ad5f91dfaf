"""The spawner for one host: a lease of the pool, and the launcher that runs the server on it.

Owns: handing what the lease allows to the launcher. Never: either half.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from traitlets import Integer, default

from jupyter_gpupool.spawner.answers import Work
from jupyter_gpupool.spawner.launching import LauncherSpawner
from jupyter_gpupool.spawner.mixin import GpuPoolMixin
from jupyter_gpupool.spawner.turns import Turns

_FAST = [sys.executable, "-P", "-m", "jupyter_gpupool.server.singleuser"]
_USUAL = "jupyterhub-singleuser"


class GpuPoolLocalSpawner(GpuPoolMixin, LauncherSpawner):
    """Servers on this host, each on its lease of the pool; ``gpupool-local`` by its entry point."""

    concurrent_starts = Integer(
        min=1,
        help="""
        How many servers start at once on this host; who waits is told how many start before. A start keeps
        a core busy, so the default is the number of cores that the Hub may use, at least 2.
        """,
    ).tag(config=True)

    reads_options = False

    @default("concurrent_starts")
    def _one_for_each_core(self) -> int:
        return max(2, len(os.sched_getaffinity(0)))

    @default("cmd")
    def _the_hubs_own_server(self) -> list[str]:
        """Start sooner what the Hub would start, unless that is of another Python."""
        found = shutil.which(_USUAL)
        others = found is not None and Path(found).parent != Path(sys.executable).parent
        return [_USUAL] if others else _FAST

    @property
    def turns(self) -> Turns:
        """The one line of this Hub."""
        return Turns.of(self.concurrent_starts, self.user.settings)

    def take_work(self, work: Work) -> None:
        """Run what the lease allows."""
        self.work = work
