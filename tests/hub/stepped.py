"""The pool's service as a Hub runs it, with a clock that a test can move on, and rules that look often."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from jupyter_gpupool.service import controller, core, main
from jupyter_gpupool.service.config import ServiceConfig

CONFIG = """
import os, sys
for service in c.JupyterHub.services:
    if service["name"] == "gpupool":
        service["command"] = [sys.executable, "-m", "tests.hub.stepped"]
        service["cwd"] = {root!r}
"""
"""What a site's configuration has in addition to be served by this."""


def configuration() -> str:
    """Return the lines for a site's configuration by which its pool is served by this program."""
    return CONFIG.format(root=str(Path(__file__).parents[2]))


def step(home: Path, ahead: float) -> None:
    """Let the service in `home` be `ahead` seconds ahead of everybody else."""
    beside = home / "ahead.new"
    beside.write_text(str(ahead))
    beside.replace(home / "ahead")


def serve() -> int:
    """Serve as the Hub says."""
    config = ServiceConfig.from_environment(allow_root=True)
    ahead = config.home.path / "ahead"

    def clock() -> float:
        return time.time() + (float(ahead.read_text()) if ahead.exists() else 0.0)

    controller.TICK_S = 0.2
    core.IDLE_LOOK_S = 0.5
    main.run = partial(main.run, clock=clock)  # type: ignore[assignment]
    return main.serve(config)


if __name__ == "__main__":
    raise SystemExit(serve())
