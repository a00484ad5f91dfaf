"""The launcher's process: ``python -m jupyter_gpupool.engines.local.daemon HOME``, or `stand`.

Owns: leaving the terminal, session and control group it was started from, being the only launcher of
its home, and the loop over socket, runners and deadlines. Never: what is done to a job.

It says ``{}`` on its standard output once it listens, or ``{"error": sentence}``. It takes no signal:
ending it in any way is safe. It leaves by itself when it has been of no use for a while; the system's,
which `stand` is, stays in the foreground and never leaves.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from jupyter_gpupool.engines.local.boot import boot_id
from jupyter_gpupool.engines.local.cgroups import LAUNCHER, Subtree
from jupyter_gpupool.engines.local.launcher import Launcher
from jupyter_gpupool.engines.local.peers import Peers
from jupyter_gpupool.engines.local.protocol import SOCKET, open_run_directory, report_to_json, socket_path
from jupyter_gpupool.engines.local.trust import Trust

Work = tuple[Launcher, Peers, selectors.BaseSelector]

IDLE_S = 60.0
_LOCK_PATIENCE_S = 5.0


class AnotherLauncherError(Exception):
    """This home has a launcher already."""


def main() -> None:
    """Become the launcher of the home given as the one argument."""
    home = Path(sys.argv[1]).resolve()
    detach()
    said = os.dup(1)
    try:
        run_directory = open_run_directory(home)
        _redirect(home / "launcher.log")
        work = _begin(home, run_directory)
    except (OSError, AnotherLauncherError) as error:
        _say(said, {"error": f"The launcher cannot start: {error}."})
        sys.exit(1)
    _say(said, {})
    serve(*work)
    launcher, *_ = work
    with contextlib.suppress(OSError):
        os.unlink(SOCKET, dir_fd=run_directory)
    launcher.close()
    os._exit(0)  # the connections close with the process: who waits for that finds nothing left


def stand(home: Path, trust: Trust, ready: Callable[[], None]) -> NoReturn:
    """Be the system's launcher: root's, for the service that `trust` names, until the process is ended.

    Parameters
    ----------
    home : Path
        Its state folder; made passable for all, with what a job's account must reach below it.
    trust : Trust
        Who may ask, and for what.
    ready
        Called once it listens; after that it writes to ``launcher.log`` only.

    Raises
    ------
    AnotherLauncherError
        This home has a launcher already.
    OSError
        A folder or the socket cannot be made.
    """
    os.umask(0o077)
    os.chdir("/")
    for folder in (home, home / "run", trust.jobs):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o711)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    work = _begin(home, open_run_directory(home, make=False), trust)
    ready()
    _redirect(home / "launcher.log")
    serve(*work)
    raise AssertionError("the system's launcher does not leave by itself")


def _begin(home: Path, run_directory: int, trust: Trust | None = None) -> Work:
    """Become the launcher of `home`, in a control group of its own where there can be one."""
    _be_the_only_one(run_directory)
    subtree = Subtree.at(home)
    if not subtree.enter(LAUNCHER):
        subtree = Subtree()
    selector = selectors.DefaultSelector()
    launcher, peers = set_up(home, boot_id(), subtree, selector, run_directory, trust)
    gc.collect()
    gc.freeze()
    return launcher, peers, selector


def set_up(
    home: Path,
    boot: str,
    subtree: Subtree,
    selector: selectors.BaseSelector,
    run_directory: int,
    trust: Trust | None = None,
) -> tuple[Launcher, Peers]:
    """Listen, and take over what an earlier launcher left."""
    listener = _listen(run_directory, trust.uid if trust else os.geteuid())
    launcher = Launcher(home, boot, subtree, selector, trust)
    launcher.recover()
    uids = frozenset({0, os.geteuid()} | ({trust.uid} if trust else set()))
    return launcher, Peers(selector, listener, launcher.hello(), launcher.handle, uids)


def serve(launcher: Launcher, peers: Peers, selector: selectors.BaseSelector) -> None:
    """Work until asked to leave, or until there has been nothing to do for `IDLE_S`."""
    last_use = time.monotonic()
    while not launcher.quitting:
        now = time.monotonic()
        launcher.tick(now)
        for end in launcher.take_ends():
            peers.broadcast({"event": "ended", "ended": report_to_json(end)})
        if launcher.busy or launcher.system or (peers and not launcher.retiring):
            last_use = now
        elif launcher.retiring or now - last_use >= IDLE_S:
            return
        launcher.prepare_spare()
        deadline = launcher.next_deadline()
        until = min(deadline, now + IDLE_S) if deadline is not None else now + IDLE_S
        for key, events in selector.select(max(0.0, until - time.monotonic())):
            key.data(events)
        launcher.reap()


def detach() -> None:
    """Fork twice: no parent waits for us, no terminal can be ours."""
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    os.umask(0o077)
    for ignored in (signal.SIGHUP, signal.SIGINT):
        signal.signal(ignored, signal.SIG_IGN)


def _be_the_only_one(run_directory: int) -> None:
    """Hold the lock as long as this process lives; an earlier launcher may be about to end."""
    lock = os.open("launcher.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=run_directory)
    give_up = time.monotonic() + _LOCK_PATIENCE_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > give_up:
                raise AnotherLauncherError("another one holds this home") from None
            time.sleep(0.02)


def _listen(run_directory: int, uid: int) -> socket.socket:
    """Listen on a socket that only the account `uid` can open."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(SOCKET, dir_fd=run_directory)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(socket_path(run_directory))
    os.chmod(SOCKET, 0o600, dir_fd=run_directory)
    os.chown(SOCKET, uid, -1, dir_fd=run_directory, follow_symlinks=False)
    listener.listen(64)
    return listener


def _say(said: int, answer: dict[str, str]) -> None:
    """Tell who started us how it went, and hang up."""
    with contextlib.suppress(BrokenPipeError), os.fdopen(said, "w") as file:
        json.dump(answer, file)


def _redirect(log: Path) -> None:
    """Let go of the standard streams we were started with; what goes wrong is written to `log`."""
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    for source, target in ((null, 0), (file, 1), (file, 2)):
        os.dup2(source, target)


if __name__ == "__main__":
    main()
