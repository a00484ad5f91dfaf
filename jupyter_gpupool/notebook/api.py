"""The pool in Python: ``job = gpupool.submit("train.py", gpus=1)``.

Owns: `submit` and `Job`. Never: a rule of the pool; a `Job` holds a number and asks the service.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jupyter_gpupool.client import artifacts, options, render
from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.errors import PoolError, Refused
from jupyter_gpupool.client.following import ENDED
from jupyter_gpupool.client.phrases import state_text
from jupyter_gpupool.client.request import Prepared, prepare_function, receipt_lines
from jupyter_gpupool.client.submitting import REQUEST, prepare_path
from jupyter_gpupool.client.tasks import JobName, numbers, title
from jupyter_gpupool.client.text import plain
from jupyter_gpupool.client.verbs import resolve
from jupyter_gpupool.notebook import live, views
from jupyter_gpupool.notebook.pool import client as pool


class Text(str):
    """Text that shows as it reads, not as a Python literal."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Job:
    """One detached job.

    Parameters
    ----------
    id
        Its number; of a task of an array ``"12[3]"``.
    client
        The pool; by default that of this kernel.
    receipt
        What was taken at submit, what was held back, where output goes; of a job found again, nothing.
    """

    def __init__(self, id: JobName, client: Client | None = None, receipt: str = ""):
        self.id = id
        self.receipt = Text(receipt)
        self._client = client or pool()

    @property
    def status(self) -> str:
        """The name of the state it is in now: ``queued``, ``running``, ``completed``, …"""
        return str(self.details()["state"])

    def details(self) -> dict[str, Any]:
        """Return all that the service says about the job."""
        return self._client.job(self.id)

    def wait(self, timeout: float | None = None) -> str:
        """Wait until the job has ended and return its state.

        Parameters
        ----------
        timeout
            Seconds.

        Raises
        ------
        TimeoutError
            It has not ended by then; it goes on.
        """
        return str(self._client.wait([self.id], timeout)[0]["state"])

    def logs(self) -> Text:
        """Return what the job has printed."""
        found = self.details()
        if not found["attempt"]:
            return Text("")
        parts: list[bytes] = []
        offset = 0
        while True:
            part = self._client.logs(self.id, offset)
            if not part.data:
                return Text(b"".join(parts).decode("utf-8", "replace"))
            parts.append(part.data)
            offset = part.offset

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end, and return what the function returned (of a cell: the variables it fetches).

        Raises
        ------
        PoolError
            The job has not completed, or its kind has no such result.
        TimeoutError
            It has not ended after `timeout` seconds.
        """
        return artifacts.result(self._client, self._client.wait([self.id], timeout)[0])

    def fetch(self, folder: str | Path = ".") -> list[Path]:
        """Copy the files that the job left in its output folder, and return where they are now."""
        return artifacts.copy_files(self._client, self.details(), Path(folder))

    def cancel(self) -> None:
        """End the job, or take it out of the queue."""
        self._client.cancel(self.id)

    def hold(self) -> None:
        """Keep the job from starting until it is released."""
        self._client.hold(self.id)

    def release(self) -> None:
        """Let a job start that is held."""
        self._client.release(self.id)

    def requeue(self) -> None:
        """Stop the job and put it back into the queue, where it keeps its submit time."""
        self._client.requeue(self.id)

    def extend(self, time: str) -> None:
        """Give the running job more time, such as ``2h``.

        Raises
        ------
        PoolError
            Somebody's promised start would move, or it may not run so long.
        """
        self._client.extend(self.id, time)

    def why(self) -> Text:
        """Say what the job waits for, or why it ended as it did."""
        return Text("\n".join(render.why(self.details())))

    def __repr__(self) -> str:
        try:
            return _line(self.details())
        except PoolError as error:
            return f"Job {self.id} ({error})"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        try:
            found = self.details()
        except PoolError:
            return {"text/plain": repr(self)}
        bundle = {"text/plain": _line(found), "text/html": str(views.job_line(found))}
        if found["state"] not in ENDED:
            bundle.update(live.mimebundle(self._client, found))
        return bundle


class Array(Job):
    """Jobs that differ in the number of their task only, seen as one."""

    @property
    def tasks(self) -> list[Job]:
        """Its tasks in their order, each a job of its own."""
        return [self[number] for number in numbers(self.details()["array"]["tasks"])]

    def __getitem__(self, number: int) -> Job:
        """Return the task with this number, the value of its ``GPUPOOL_ARRAY_INDEX``."""
        return Job(f"{self.id}[{number}]", self._client)

    def result(self, timeout: float | None = None) -> list[Any]:
        """Wait for the end, and return the results of all tasks in their order; see `Job.result`."""
        self.wait(timeout)
        return [task.result() for task in self.tasks]


def job(id: JobName) -> Job:
    """Return a job by its number, an array's task by ``"12[3]"``, or the newest one: ``job("last")``.

    Raises
    ------
    PoolError
        There is no such job of yours.
    """
    client = pool()
    name = resolve(client, id)
    return Array(name, client) if client.job(name).get("array") else Job(name, client)


def submit(
    what: str | Path | Callable[..., Any],
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    **request: Any,
) -> Job:
    """Submit a script, a notebook, or a call of a function as a detached job.

    Where somebody is at the keyboard, the job's `receipt` is printed.

    Parameters
    ----------
    what
        The path of a script or of a notebook (``.ipynb``), or a function.
    args
        Arguments of the function; of a script: strings, also as ``args=[…]``.
    kwargs
        Keyword arguments of the function.
    request
        The options of the command line: ``gpus=1``, ``gpu_memory="8GiB"``, ``time="2h"``,
        ``window="night"``, ``parameters={…}``, ``array="0-9%4"`` (the answer is then an `Array`),
        ``after=[12]`` or ``after=job``, ``retries=2``, …

    Raises
    ------
    PoolError
        The request is refused; nothing was submitted.
    """
    job = submitted(_prepared(what, args, kwargs, request), pool())
    if live.is_interactive():
        print(job.receipt)
    return job


def submitted(prepared: Prepared, client: Client) -> Job:
    """Submit a prepared request."""
    found = client.submit(prepared.body, prepared.snapshot)
    receipt = receipt_lines(found, prepared.taken, prepared.held_back)
    handle = Array if found.get("array") else Job
    return handle(int(found["id"]), client, "\n".join(receipt))


def _prepared(
    what: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None, request: dict[str, Any]
) -> Prepared:
    own = request.pop("args", ())
    chosen = options.keywords(request, REQUEST)
    if callable(what):
        if own:
            raise Refused("invalid_option", "args=[…] is for scripts.", hint="Write submit(function, 1, 2).")
        return prepare_function(what, tuple(args), kwargs, chosen)
    if not isinstance(what, (str, Path)):
        raise Refused("invalid_option", f"submit takes a path or a function, not a {type(what).__name__}.")
    if kwargs:
        raise Refused("invalid_option", "kwargs={…} is for functions.", hint="Give a script args=[…].")
    return prepare_path(str(what), [str(arg) for arg in (*args, *own)], chosen)


def _line(found: Mapping[str, Any]) -> str:
    said = dict.fromkeys((state_text(found["state"]), render.standing(found, state_shown=True)))
    return plain(f"{title(found)} ({found['name']}): {', '.join(said)}")
