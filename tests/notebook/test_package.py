"""The package's own names: found when used, and importable where nothing is installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

import jupyter_gpupool

SURVEY = """
import sys
before = set(sys.modules)
import jupyter_gpupool
jupyter_gpupool.should_stop
loaded = {name.partition('.')[0] for name in set(sys.modules) - before}
print(sorted(loaded - set(sys.stdlib_module_names) - {'jupyter_gpupool', 'gpupool_job'}))
"""


@pytest.mark.parametrize("name", [name for name in jupyter_gpupool.__all__ if name != "__version__"])
def test_every_name_is_there(name: str) -> None:
    assert callable(getattr(jupyter_gpupool, name))
    assert name in dir(jupyter_gpupool)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'sumbit'"):
        _ = jupyter_gpupool.sumbit


def test_the_calls_of_a_job_need_the_standard_library_only() -> None:
    done = subprocess.run([sys.executable, "-c", SURVEY], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_jupyter_finds_its_two_extensions() -> None:
    assert jupyter_gpupool._jupyter_labextension_paths() == [
        {"src": "labextension", "dest": "jupyter-gpupool"}
    ]
    (point,) = jupyter_gpupool._jupyter_server_extension_points()
    assert point["module"].startswith("jupyter_gpupool")
