"""A job in a notebook, alive: state, progress, the end of its log, a button to cancel it.

Owns: the ipywidgets of one job and the two threads that keep them current. Never: blocks the kernel, or
keeps a thread after the job has ended or the view was closed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from html import escape
from typing import Any

import ipywidgets

from jupyter_gpupool.client import render
from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.errors import PoolError
from jupyter_gpupool.client.following import ENDED, concerns
from jupyter_gpupool.client.sse import parse_events
from jupyter_gpupool.notebook import html

Json = Mapping[str, Any]

TAIL_BYTES = 16 * 1024
TAIL_LINES = 12
LOG_WAIT = 2  # seconds that a request for more of the log may take: so long may closing last
BAR_STYLE = {"completed": "success", "failed": "danger", "timed_out": "danger"}
CALM = 0.2  # seconds between updates of the log, however much the job prints
RETRY = 2.0  # seconds between tries when the service does not answer


class JobView(ipywidgets.VBox):  # type: ignore[misc]
    """A live view of one job; it is current until the job has ended or `close` is called.

    Parameters
    ----------
    client
        The pool.
    job
        The job as the service last described it.
    """

    def __init__(self, client: Client, job: Json):
        self._client = client
        self._id = int(job["id"])
        self._left = threading.Event()
        self._log_thread: threading.Thread | None = None
        self._stream: Any = None
        self._title = ipywidgets.HTML()
        self._bar = ipywidgets.FloatProgress(min=0.0, max=1.0, layout={"width": "20em"})
        self._note = ipywidgets.HTML()
        self._log = ipywidgets.HTML()
        self._cancel = ipywidgets.Button(
            description="Cancel", icon="stop", tooltip=f"End job {self._id}", layout={"width": "7em"}
        )
        self._cancel.on_click(lambda _: self._ask_to_cancel())
        head = ipywidgets.HBox([self._title, self._bar, self._cancel], layout={"align_items": "center"})
        super().__init__([head, self._note, self._log])
        self._show(job)
        if job["state"] not in ENDED:
            self._start(self._watch)

    def close(self) -> None:
        """Take the view away; its threads end."""
        self._left.set()
        stream = self._stream
        if stream is not None:
            stream.interrupt()
        for part in (*self.children[0].children, *self.children):
            part.close()
        super().close()

    def _start(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            finally:
                self._client.connection.close()  # this thread's own

        thread = threading.Thread(target=run, name=f"gpupool-job-{self._id}", daemon=True)
        thread.start()
        return thread

    def _watch(self) -> None:
        """Show the job again whenever an event tells of it."""
        try:
            for job in self._changes():
                self._show(job)
                if job["state"] in ENDED:
                    return
        except PoolError as error:
            self._say(str(error))

    def _changes(self) -> Iterator[Json]:
        """Yield the job now and after each of its events; reconnect while the service is away."""
        last = ""
        while not self._left.is_set():
            try:
                with self._client.open_events(last) as self._stream:
                    yield self._client.job(self._id)
                    for event in parse_events(self._stream.lines()):
                        if self._left.is_set():
                            return
                        last = event.id or last
                        if concerns(event, [self._id]):
                            yield self._client.job(self._id)
            except (OSError, PoolError) as error:
                if getattr(error, "code", "") == "not_found":
                    raise
            self._left.wait(RETRY)

    def _follow(self) -> None:
        """Show the end of the log while this run of the job lasts."""
        offset, text = -TAIL_BYTES, b""
        while not self._left.is_set():
            try:
                part = self._client.logs(self._id, offset, wait=LOG_WAIT)
            except PoolError:
                self._left.wait(RETRY)
                continue
            offset, text = part.offset, (text + part.data)[-TAIL_BYTES:]
            if part.data:
                self._show_log(text)
                self._left.wait(CALM)
            elif part.ended:
                return

    def _show(self, job: Json) -> None:
        state = job["state"]
        ended = state in ENDED
        fraction = (job.get("progress") or {}).get("fraction")
        self._title.value = f"<b>Job {self._id}</b> {escape(str(job['name']))}: {html.state(state)}"
        self._bar.value = fraction or 0.0
        self._bar.description = "" if fraction is None else f"{100 * fraction:.0f} %"
        self._bar.layout.display = "none" if fraction is None else ""
        self._bar.bar_style = BAR_STYLE.get(state, "")
        self._cancel.layout.display = "none" if ended else ""
        self._say(render.standing(job))
        if state in ("running", "stopping") and not (self._log_thread and self._log_thread.is_alive()):
            self._log_thread = self._start(self._follow)
        if ended and job.get("attempt"):
            with suppress(PoolError):
                self._show_log(self._client.logs(self._id, -TAIL_BYTES).data)

    def _show_log(self, data: bytes) -> None:
        lines = data.decode("utf-8", "replace").splitlines()[-TAIL_LINES:]
        self._log.value = html.preformatted("\n".join(lines), f"end of the log of job {self._id}")

    def _say(self, text: str) -> None:
        self._note.value = f'<span role="status">{escape(text)}</span>'

    def _ask_to_cancel(self) -> None:
        self._cancel.disabled = True
        try:
            self._show(self._client.cancel(self._id))
        except PoolError as error:
            self._cancel.disabled = False
            self._say(str(error))
