"""Runs one notebook: ``python -m jupyter_gpupool.engines.local.notebook_host``, as a job's program.

Owns: executing the notebook with its parameters, saving it while it runs, its progress, and the exit
code: 0 done, 1 a cell failed or the kernel died, 2 it cannot be run, 143 it was told to end.
Never: the queue, the snapshot, anything of the user's in this process; user code runs in the kernel.

Reads from the environment ``GPUPOOL_ENTRY`` (``{"notebook", "parameters", "kernel"}``, JSON),
``GPUPOOL_CODE_DIR``, ``GPUPOOL_OUT_DIR`` and ``GPUPOOL_JOB_DIR``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

# Building this optional grammar of jsonschema takes longer than all else that is imported here.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

# ruff: noqa: E402
import nbformat
from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
from jupyter_core.utils import run_sync
from nbclient.exceptions import CellExecutionError, DeadKernelError
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NotebookExecutionManager
from papermill.execute import prepare_notebook_metadata, remove_error_markers
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

DONE, FAILED, UNUSABLE, TOLD_TO_END = 0, 1, 2, 128 + signal.SIGTERM
AUTOSAVE_S = 5
KERNEL_END_S = 2.5
TRACEBACK_LINES = 30
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class UnusableError(Exception):
    """The notebook cannot be run at all; `str()` is one sentence."""


def main() -> NoReturn:
    """Run the notebook that the environment names and exit with its code."""
    try:
        code = run(os.environ)
    except UnusableError as error:
        print(error, file=sys.stderr)
        code = UNUSABLE
    sys.stdout.flush()
    sys.exit(code)


def run(environ: Mapping[str, str]) -> int:
    """Execute the notebook; return the exit code.

    Raises
    ------
    UnusableError
        The notebook or its kernel is not there.
    """
    entry = json.loads(environ["GPUPOOL_ENTRY"])
    name = Path(entry["notebook"]).name
    source = _source(Path(environ["GPUPOOL_CODE_DIR"]), entry["notebook"])
    language = language_of(entry["kernel"])
    notebook = _prepared(_read(source), name, entry, language)
    manager = Saving(notebook, Path(environ["GPUPOOL_OUT_DIR"]) / name, Path(environ["GPUPOOL_JOB_DIR"]))
    return _execute(manager, entry["kernel"])


def language_of(kernel: str) -> str:
    """Return the language that a kernel runs.

    Raises
    ------
    UnusableError
        There is no such kernel; the sentence names those that there are.
    """
    manager = KernelSpecManager()
    try:
        return str(manager.get_kernel_spec(kernel).language)
    except NoSuchKernel:
        known = ", ".join(sorted(manager.find_kernel_specs())) or "none"
        raise UnusableError(f"There is no kernel named {kernel!r} here; known kernels: {known}.") from None


def _source(code: Path, notebook: str) -> Path:
    """The submitted notebook: the payload if it came as one, else the file of the snapshot."""
    for path in (code / ".gpupool" / "notebook.ipynb", code / notebook):
        if path.resolve().is_relative_to(code.resolve()) and path.is_file():
            return path
    raise UnusableError(f"The notebook {notebook} is not in the snapshot; submit it again.")


def _read(source: Path) -> Any:
    try:
        return load_notebook_node(str(source))
    except Exception as error:
        raise UnusableError(
            f"The file is not a notebook that can be read ({str(error).splitlines()[0]})."
        ) from None


def _prepared(notebook: Any, name: str, entry: dict[str, Any], language: str) -> Any:
    """The notebook with its parameters injected and the marks of an earlier run removed."""
    notebook.metadata["kernelspec"] = {
        **notebook.metadata.get("kernelspec", {}),
        "name": entry["kernel"],
        "language": language,
    }
    notebook = remove_error_markers(prepare_notebook_metadata(notebook, name, name))
    if entry["parameters"]:
        notebook = parameterize_notebook(
            notebook, entry["parameters"], kernel_name=entry["kernel"], language=language
        )
    return notebook


class Saving(NotebookExecutionManager):  # type: ignore[misc]
    """Keeps the executed notebook on disk, whole at every moment, and counts the cells done."""

    def __init__(self, notebook: Any, output: Path, job_dir: Path) -> None:
        super().__init__(notebook, str(output), progress_bar=False, autosave_cell_every=AUTOSAVE_S)
        self._output = output
        self._progress = job_dir / "progress.jsonl"
        self.cells_done = 0
        self.told_to_end = False

    def save(self, **_: Any) -> None:
        """Write beside, then rename: a reader never sees half a notebook."""
        beside = self._output.with_name(f".{self._output.name}.new")
        beside.write_text(nbformat.v4.writes(self.nb), encoding="utf-8")  # type: ignore[no-untyped-call]
        os.replace(beside, self._output)
        self.last_save_time = self.now()

    def cell_complete(self, cell: Any, cell_index: int | None = None, **kwargs: Any) -> None:
        """Save, and append the progress."""
        super().cell_complete(cell, cell_index=cell_index, **kwargs)
        self.cells_done += 1
        done, total = self.cells_done, len(self.nb.cells)
        line = {"t": time.time(), "fraction": done / total, "values": {"cells_done": done, "cells": total}}
        with self._progress.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


class Client(PapermillNotebookClient):  # type: ignore[misc]
    """Papermill's client, with a kernel that the SIGTERM to all of the job does not reach.

    The kernel is interrupted instead, so that the notebook can be saved with what it has.
    """

    _interruption: asyncio.Future[None] | None = None
    private_folder = ""

    def create_kernel_manager(self) -> Any:
        """Have IPython's kernel keep no history file, and listen where no other user can reach it."""
        manager = super().create_kernel_manager()
        if any("ipykernel" in part for part in manager.kernel_spec.argv):
            manager.connection_file = os.path.join(self.private_folder, "kernel.json")
            manager.transport = "ipc"
            self.extra_arguments = ["--HistoryManager.enabled=False"]
        return manager

    def papermill_execute_cells(self) -> None:
        """Execute cell after cell, until one fails or the job is told to end."""
        for index, cell in enumerate(self.nb.cells):
            if self.nb_man.told_to_end:
                return
            self.nb_man.cell_start(cell, index)
            try:
                self.execute_cell(cell, index)
            except CellExecutionError as error:
                self.nb_man.cell_exception(self.nb.cells[index], cell_index=index, exception=error)
                return
            finally:
                self.nb_man.cell_complete(self.nb.cells[index], cell_index=index)

    def set_widgets_metadata(self) -> None:
        """Note the widgets, which is the last that the kernel is needed for; then let it end."""
        super().set_widgets_metadata()
        run_sync(self._end_kernel)()

    async def _end_kernel(self) -> None:
        """Ask the kernel to end, on the channel that its main thread reads.

        Asked on the control channel, as is usual, IPython's kernel can hang: that thread then
        writes while the main thread closes what it writes to.
        """
        request = self.kc.session.msg("shutdown_request", {"restart": False})
        self.kc.shell_channel.send(request)
        give_up = time.monotonic() + KERNEL_END_S
        while await self.km.is_alive() and time.monotonic() < give_up:
            await asyncio.sleep(0.01)

    def interrupt(self) -> None:
        """Interrupt the cell that runs, if one does; may be called from a signal handler."""
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop().call_soon_threadsafe(self._interrupt)

    def _interrupt(self) -> None:
        if self.km is not None:
            self._interruption = asyncio.ensure_future(self.km.interrupt_kernel())


def _ignore_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _execute(manager: Saving, kernel: str) -> int:
    client = Client(
        manager,
        kernel_name=kernel,
        timeout=None,
        startup_timeout=120,
        stdout_file=sys.stdout,
        stderr_file=sys.stderr,
    )

    def end(_signal: int, _frame: FrameType | None) -> None:
        manager.told_to_end = True
        client.interrupt()

    signal.signal(signal.SIGTERM, end)
    manager.notebook_start()
    try:
        with tempfile.TemporaryDirectory(prefix="gpupool-") as client.private_folder:
            client.execute(preexec_fn=_ignore_sigterm)
    except DeadKernelError:
        print("The notebook's kernel died.", file=sys.stderr)
        return FAILED
    except (RuntimeError, OSError) as error:
        print(f"The kernel {kernel!r} failed: {error}.", file=sys.stderr)
        return FAILED
    finally:
        manager.notebook_complete()
    failure = failed_cell(manager.nb)
    if manager.told_to_end and (failure or manager.cells_done < len(manager.nb.cells)):
        return TOLD_TO_END
    if failure:
        print(failure, file=sys.stderr)
    return FAILED if failure else DONE


def failed_cell(notebook: Any) -> str | None:
    """A short account of the cell that failed; None if none did."""
    for index, cell in enumerate(notebook.cells, start=1):
        if cell.metadata.get("papermill", {}).get("status") == NotebookExecutionManager.FAILED:
            errors = [output for output in cell.outputs if output.output_type == "error"]
            lines = _COLOURS.sub("", "\n".join(errors[-1].traceback)).splitlines() if errors else []
            return "\n".join([f"Cell {index} of the notebook failed:", *lines[-TRACEBACK_LINES:]])
    return None


if __name__ == "__main__":
    main()
