"""A launcher whose SIGKILL does not end processes called `stubborn`, as where they hang in a driver."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from jupyter_gpupool.engines.local import attempt, cgroups, daemon, launcher, runner

kill, write = os.kill, cgroups._try_write


def kill_but_some(pid: int, number: int) -> None:
    """Signal a process, unless this would end one that is called `stubborn`."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        words = []
    if number != signal.SIGKILL or b"stubborn" not in words:
        kill(pid, number)


def write_but_kill(path: Path, text: str) -> bool:
    """Write to a control group's file, unless this would end all that is in it."""
    return path.name != "cgroup.kill" and write(path, text)


if __name__ == "__main__":
    os.kill = kill_but_some
    cgroups._try_write = write_but_kill
    attempt.RUNNER_PATIENCE_S = runner.TREE_PATIENCE_S = launcher.CLEAR_PATIENCE_S = 0.1
    daemon.main()
