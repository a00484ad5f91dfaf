"""A library that answers like NVIDIA's, compiled here, under the real Python binding."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest

from tests.devices.stub import compiled_stub


@pytest.fixture(scope="session")
def stub_library(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """Compile the stub once; None where there is no C compiler."""
    return compiled_stub(tmp_path_factory.mktemp("nvml"))


class StubDriver:
    """The state that the stub library reads at each call."""

    def __init__(self, library: Path, state: Path) -> None:
        self.library = library
        self.state = state

    def says(self, *lines: str) -> None:
        """Replace the whole state."""
        self.state.write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture
def driver(
    stub_library: Path | None,
    require: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> StubDriver:
    """Put the stub under pynvml for one test."""
    if stub_library is None:
        require("there is no C compiler to build the stand-in for libnvidia-ml.so.1 (install gcc)")
        raise AssertionError
    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(stub_library)))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    stub = StubDriver(stub_library, tmp_path / "nvml.state")
    monkeypatch.setenv("STUB_NVML_STATE", str(stub.state))
    stub.says()
    return stub
