"""The part of JupyterLab: its version, its lock file, and what the build left for the wheel."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import jupyter_gpupool

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "labextension"
BUILT = ROOT / "jupyter_gpupool" / "labextension"


@pytest.fixture
def built(require):
    """The built extension's package.json."""
    if not (BUILT / "package.json").exists():
        require("the Lab extension is not built (cd labextension && jlpm install && jlpm build:prod)")
    return json.loads((BUILT / "package.json").read_text())


def test_python_and_lab_parts_have_one_version():
    assert json.loads((SOURCE / "package.json").read_text())["version"] == jupyter_gpupool.__version__


def test_lab_is_told_where_the_extension_is():
    (path,) = jupyter_gpupool._jupyter_labextension_paths()
    assert path == {"src": "labextension", "dest": "jupyter-gpupool"}
    install = json.loads((SOURCE / "install.json").read_text())
    assert install["packageName"] == "jupyter-gpupool"


def test_the_lock_file_names_no_host():
    assert "://" not in (SOURCE / "yarn.lock").read_text()


def test_texts_are_translated_in_a_domain_of_our_own():
    sources = [path.read_text() for path in (SOURCE / "src").rglob("*.ts*")]
    assert re.findall(r"\.load\(([^)]*)\)", "".join(sources)) == ["DOMAIN"]
    assert "const DOMAIN = 'jupyter_gpupool';" in "".join(sources)


def test_the_style_uses_the_themes_colours_only():
    style = (SOURCE / "style" / "base.css").read_text()
    assert not re.search(r"#[0-9a-fA-F]{3,8}\b|rgba?\(|hsla?\(", style)


def test_the_built_extension_can_be_loaded_by_lab(built):
    assert built["name"] == "jupyter-gpupool"
    assert built["version"] == jupyter_gpupool.__version__
    assert (BUILT / built["jupyterlab"]["_build"]["load"]).is_file()
    assert (BUILT / "static" / "style.js").is_file()
