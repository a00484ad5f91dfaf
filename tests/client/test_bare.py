"""The client needs nothing but the standard library of Python 3.9."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import jupyter_gpupool

PACKAGE = Path(jupyter_gpupool.__file__).parent
ROOT = PACKAGE.parent
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (PACKAGE / "client").rglob("*.py")
)
VERMIN = "from vermin import main; main()"
IMPORT_ALL = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
before = set(sys.modules)
for name in sys.argv[2:]:
    importlib.import_module(name)
outside = {
    module.__name__.partition(".")[0]
    for module in list(sys.modules.values())
    if "site-packages" in (getattr(module, "__file__", None) or "")
}
print(sorted(outside - {"jupyter_gpupool"}))
"""


def test_every_module_imports_in_a_bare_python(bare_python):
    done = subprocess.run(
        [bare_python, "-I", "-S", "-c", IMPORT_ALL, str(ROOT), *MODULES], capture_output=True, text=True
    )
    assert done.stderr == ""
    assert done.stdout == "[]\n"


def test_no_module_imports_a_dependency_where_there_are_some():
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, str(ROOT), *MODULES], capture_output=True, text=True
    )
    assert done.stderr == ""
    assert "tornado" not in done.stdout
    assert "pydantic" not in done.stdout
    assert "IPython" not in done.stdout


@pytest.mark.parametrize("folder", ["client", "notebook"])
def test_the_syntax_is_that_of_python_3_9(folder):
    pytest.importorskip("vermin")
    done = subprocess.run(
        [sys.executable, "-c", VERMIN, "-t=3.9-", "--no-tips", "--violations", str(PACKAGE / folder)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_request_is_made_and_sent_in_a_bare_python(bare_python, service, tmp_path):
    (tmp_path / "train.py").write_text("import helpers\n")
    (tmp_path / "helpers.py").write_text("")
    service.answer = lambda call: service.reply({"id": 5}, status=404 if call.method == "HEAD" else 201)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from jupyter_gpupool.client.api import Client\n"
        "from jupyter_gpupool.client.find import find_pool\n"
        "from jupyter_gpupool.client.request import prepare_script\n"
        "prepared = prepare_script('train.py', ['1'], {'gpus': '1'})\n"
        "print(Client(find_pool()).submit(prepared.body, prepared.snapshot)['id'])\n"
    )
    environ = {"GPUPOOL_URL": service.url, "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [bare_python, "-S", "-c", code, str(ROOT)], env=environ, cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("5\n", "")
    assert [call.method for call in service.calls] == ["HEAD", "PUT", "POST"]
    assert service.calls[-1].json["entry"] == {"script": "train.py", "args": ["1"]}
