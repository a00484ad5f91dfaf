"""Compiles the stand-in for NVIDIA's library."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).parent / "stub_nvml" / "nvml.c"


def compiled_stub(folder: Path) -> Path | None:
    """Compile ``libnvidia-ml.so.1`` into `folder`; None where there is no C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(
        [compiler, "-std=gnu11", "-shared", "-fPIC", "-o", str(library), str(SOURCE)],
        check=True,
        capture_output=True,
    )
    return library
