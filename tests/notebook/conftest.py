"""An IPython shell with the magics, over a service that answers as told."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import jupyter_gpupool
from tests.faces.fake import fake  # noqa: F401  (a fixture)


class Ran(NamedTuple):
    """What a cell gave: its value, what it printed, and the error it raised."""

    value: Any
    out: str
    error: BaseException | None


class Notebook:
    """Runs cells in a shell."""

    def __init__(self, shell: InteractiveShell):
        self.shell = shell

    def run(self, cell: str) -> Ran:
        out = io.StringIO()
        with redirect_stdout(out), redirect_stderr(out):
            done = self.shell.run_cell(cell)
        return Ran(done.result, out.getvalue(), done.error_before_exec or done.error_in_exec)

    def display(self, cell: str) -> dict[str, Any]:
        """Return the display data of a cell's value."""
        return self.run(cell).value._repr_mimebundle_()


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    monkeypatch.chdir(tmp_path)
    config = Config()
    config.HistoryManager.enabled = False
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(config=config)
    jupyter_gpupool.load_ipython_extension(shell)
    yield Notebook(shell)
    InteractiveShell.clear_instance()
