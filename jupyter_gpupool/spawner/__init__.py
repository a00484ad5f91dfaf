"""The Hub's side of a login: spawners that start servers on leases of the pool."""

from jupyter_gpupool.spawner.launching import LauncherSpawner
from jupyter_gpupool.spawner.local import GpuPoolLocalSpawner
from jupyter_gpupool.spawner.mixin import GpuPoolMixin

__all__ = ["GpuPoolLocalSpawner", "GpuPoolMixin", "LauncherSpawner"]
