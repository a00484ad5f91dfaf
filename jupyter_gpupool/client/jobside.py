"""The three calls of a job under the package's own name; see `gpupool_job`, their one source."""

from __future__ import annotations

from jupyter_gpupool.client.portable.gpupool_job import checkpoint_dir, progress, should_stop

__all__ = ["checkpoint_dir", "progress", "should_stop"]
