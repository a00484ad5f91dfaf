"""What a job may tell the pool and ask it: ``import gpupool_job`` in any Python from 3.9 on.

Owns: `should_stop`, `progress`, `checkpoint_dir`. Outside a job they do nothing harmful: there is no stop,
progress goes nowhere, checkpoints go to a folder here. Never: anything at import.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import signal
import threading
import time
from urllib.parse import urlsplit

__all__ = ["checkpoint_dir", "progress", "should_stop"]

EVERY = 5.0  # seconds between two reports over the network
PAUSE = 60.0  # seconds without reports after one that did not arrive

_stopping = threading.Event()


def should_stop() -> bool:
    """Tell whether the pool wants this job to save its work and end.

    A job that makes room for others and leaves with another exit code than 0 runs again later; 0 says that
    its work is done.

    The first call in the main thread makes SIGTERM set this answer instead of ending the process, unless
    the program handles SIGTERM itself. All processes of the job get the same answer.
    """
    _listen()
    asked = _stopping.is_set() or os.path.exists(_in_job("stop") or "")
    if asked:
        _heard()
    return asked


def progress(fraction: float | None = None, **values: object) -> None:
    """Report how far the job is.

    Parameters
    ----------
    fraction : float, optional
        From 0 to 1.
    **values
        Numbers or texts to show beside it, such as ``loss=0.3``.
    """
    if fraction is not None:
        fraction = min(1.0, max(0.0, float(fraction)))
    shown = {name: _plain(value) for name, value in values.items()}
    report: dict[str, object] = {"fraction": fraction, "values": shown}
    path = _in_job("progress.jsonl")
    if path is not None:
        _append(path, {"t": time.time(), **report})
    elif os.environ.get("GPUPOOL_TOKEN"):
        _remote.send(report, time.monotonic())


def checkpoint_dir() -> str:
    """Return the folder for checkpoints: it is there again when the job runs again."""
    folder = os.environ.get("GPUPOOL_CHECKPOINT_DIR") or os.path.abspath("checkpoint")
    os.makedirs(folder, exist_ok=True)
    return folder


def _append(path: str, report: dict[str, object]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        line = json.dumps(report) + "\n"
        os.write(descriptor, line.encode("utf-8"))  # one write: lines of several processes never mix
    finally:
        os.close(descriptor)


class _Remote:
    """The way of reports from a job that shares no folder with the service; none may hold up the job."""

    quiet_until = -math.inf

    def send(self, report: dict[str, object], now: float) -> None:
        """Send a report unless the last one is too fresh; that the job is done is always sent."""
        if now >= self.quiet_until or report["fraction"] == 1.0:
            self.quiet_until = now + (EVERY if _post(report) else PAUSE)


_remote = _Remote()


def _post(report: dict[str, object]) -> bool:
    """Send a report with the job's own token, over https alone, and tell whether it arrived."""
    url = urlsplit(os.environ.get("GPUPOOL_URL", ""))
    if url.scheme != "https":
        return False
    connection = http.client.HTTPSConnection(url.netloc, timeout=EVERY)
    headers = {
        "Authorization": "token " + os.environ["GPUPOOL_TOKEN"],
        "Content-Type": "application/json",
    }
    path = f"{url.path.rstrip('/')}/api/v1/jobs/{os.environ.get('GPUPOOL_JOB_ID')}/progress"
    try:
        connection.request("POST", path, json.dumps(report), headers)
        return connection.getresponse().status < 300
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _in_job(name: str) -> str | None:
    folder = os.environ.get("GPUPOOL_JOB_DIR")
    return os.path.join(folder, name) if folder else None


def _listen() -> None:
    if (
        _in_job("stop")
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    ):
        signal.signal(signal.SIGTERM, _on_sigterm)


def _heard() -> None:
    """Let no further SIGTERM end this program: it knows, and while Python ends it has no handlers."""
    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is _on_sigterm
    ):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _on_sigterm(number: int, frame: object) -> None:
    """Remember the signal, and leave a mark for the job's other processes and threads."""
    _stopping.set()
    try:
        open(_in_job("stop") or os.devnull, "a").close()
    except OSError:
        pass


def _plain(value: object) -> object:
    """Return a value that JSON can hold: numbers of other libraries as Python's, all else as text."""
    item = getattr(value, "item", None)
    try:
        value = item() if callable(item) else value
    except (TypeError, ValueError, RuntimeError):
        return str(value)  # an array
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)
