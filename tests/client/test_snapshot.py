"""What a job takes along: modules by their imports, folders by their ignore rules, caps, and the tar."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpupool.client import gitignore, snapshot
from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.client.modules import (
    Import,
    imports,
    is_installed,
    local_modules,
    module_root,
    python_lines,
)
from jupyter_gpupool.client.snapshot import Collection, add_folder, add_script, collection, locate_script
from jupyter_gpupool.client.tarball import Content, pack


def tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def script_files(path, workdir):
    files = Collection()
    script, root, name = locate_script(path, workdir)
    add_script(files, script, root, workdir)
    return name, sorted(files.files)


# -- modules -----------------------------------------------------------------------------------------


def test_imports_are_found_wherever_they_stand():
    source = """
import a, b.c as d
from e import f, g
from . import h
from ..i import j
def function():
    import k
try:
    import l
except ImportError:
    importlib.import_module("m")
__import__(name)
"""
    assert set(imports(source)) == {
        Import("a"),
        Import("b.c"),
        Import("e", ("f", "g")),
        Import("", ("h",), 1),
        Import("i", ("j",), 2),
        Import("k"),
        Import("l"),
        Import("m"),
    }
    assert imports("this is not python") == []


def test_a_script_takes_its_local_modules_along_and_nothing_else(tmp_path):
    tree(
        tmp_path,
        {
            "train.py": "import os, numpy, helpers\nfrom models.net import Net\nimport space.deep\n",
            "helpers.py": "import train, more\n",
            "more.py": "",
            "unused.py": "",
            "models/__init__.py": "from . import loss\n",
            "models/net.py": "from .parts import block\nfrom ..helpers import x\n",
            "models/parts/__init__.py": "",
            "models/parts/block.py": "",
            "models/loss.py": "from .net import *\n",
            "models/unused.py": "",
            "space/deep.py": "",
            "numpy_data/x.py": "",
            "data.csv": "1",
        },
    )
    assert script_files("train.py", tmp_path) == (
        "train.py",
        [
            "helpers.py",
            "models/__init__.py",
            "models/loss.py",
            "models/net.py",
            "models/parts/__init__.py",
            "models/parts/block.py",
            "more.py",
            "space/deep.py",
            "train.py",
        ],
    )


def test_a_script_in_a_folder_keeps_its_place_and_finds_modules_beside_it_first(tmp_path):
    tree(
        tmp_path,
        {
            "src/train.py": "import helpers, common\n",
            "src/helpers.py": "",
            "helpers.py": "wrong",
            "common.py": "",
        },
    )
    assert script_files("src/train.py", tmp_path) == (
        "src/train.py",
        ["common.py", "src/helpers.py", "src/train.py"],
    )


def test_a_script_from_elsewhere_comes_with_its_own_folder(tmp_path):
    tree(tmp_path, {"work/common.py": "", "tools/run.py": "import beside, common\n", "tools/beside.py": ""})
    work = tmp_path / "work"
    expected = ("run.py", ["beside.py", "common.py", "run.py"])
    assert script_files("../tools/run.py", work) == expected
    assert script_files(str(tmp_path / "tools" / "run.py"), work) == expected


def test_a_folder_of_data_does_not_hide_a_module(tmp_path):
    tree(tmp_path, {"src/train.py": "import utils\n", "src/utils/weights.bin": "", "utils.py": ""})
    assert script_files("src/train.py", tmp_path)[1] == ["src/train.py", "utils.py"]


def test_where_a_module_was_imported_from(tmp_path):
    assert module_root(tmp_path / "a" / "b.py", "a.b") == tmp_path
    assert module_root(tmp_path / "a" / "__init__.py", "a") == tmp_path
    assert module_root(tmp_path / "m.py", "m") == tmp_path
    assert is_installed(Path(json.__file__))
    assert is_installed(Path(pytest.__file__))
    assert not is_installed(tmp_path / "m.py")
    assert local_modules([Import("json")], [tmp_path]) == {}


def test_ipython_lines_do_not_hide_imports():
    source = "%matplotlib inline\nimport a\nif x:\n    !ls\nfiles = !ls\nimport b\n"
    assert imports(python_lines(source)) == [Import("a"), Import("b")]
    row = ",".join("1" * 5000)  # a long line of data is no trap for the pattern
    assert python_lines(row) == row


# -- refusals ----------------------------------------------------------------------------------------


def test_scripts_that_cannot_be_taken_are_refused_with_one_sentence(tmp_path):
    work = tmp_path / "work"
    tree(tmp_path, {"work/pkg/x.py": "", "outside/secret.py": "", "work/ok.py": ""})
    os.mkfifo(work / "fifo.py")
    (work / "link.py").symlink_to(tmp_path / "outside" / "secret.py")
    (work / "away").symlink_to(tmp_path / "outside")
    (work / "dangling.py").symlink_to(work / "nothing")
    (work / "loop.py").symlink_to(work / "loop.py")
    (work / "inside.py").symlink_to(work / "ok.py")
    for name, problem in {
        "missing.py": r"^There is no file .*missing\.py\.$",
        "pkg": r"is a folder, not a file\. Name the script in it\.$",
        "fifo.py": r"is a fifo; a job takes regular files only\.$",
        "link.py": r"leads by a link to .*secret\.py, outside .*work\.",
        "away/secret.py": r"leads by a link to",
        "dangling.py": r"^There is no file",
        "loop.py": r"cannot be read: .*",
        "nul\0.py": r"cannot be read: .*embedded null",
    }.items():
        with pytest.raises(Refused, match=problem) as caught:
            locate_script(name, work)
        assert "\n" not in str(caught.value)
    assert locate_script("inside.py", work)[2] == "inside.py"


def test_a_module_behind_a_link_outside_is_refused(tmp_path):
    tree(tmp_path, {"outside/secret.py": "", "work/train.py": "import helper\n"})
    (tmp_path / "work" / "helper.py").symlink_to(tmp_path / "outside" / "secret.py")
    with pytest.raises(Refused, match=r"helper\.py leads by a link"):
        script_files("train.py", tmp_path / "work")


def test_a_folder_over_the_cap_names_its_biggest_entries(tmp_path):
    tree(
        tmp_path,
        {"data/a.bin": "x" * 3000, "data/b.bin": "x" * 3000, "model.bin": "x" * 2000, "train.py": "pass"},
    )
    with pytest.raises(Refused) as caught:
        add_folder(Collection(max_bytes=4096), tmp_path)
    assert caught.value.message == (
        "What the job would take along is 7.8 KiB, over the cap of 4.0 KiB; the biggest entries: "
        "data/ (5.9 KiB), model.bin (2.0 KiB), train.py (4 bytes)."
    )
    with pytest.raises(
        Refused, match=r"is 4 files, over the cap of 3; the biggest entries: data/ \(2 files\)"
    ):
        add_folder(Collection(max_files=3), tmp_path)


def test_payloads_count_against_the_cap():
    files = Collection(max_bytes=10)
    files.add(".gpupool/sent.pkl", Content(b"x" * 11))
    with pytest.raises(Refused, match=r"\.gpupool/ \(11 bytes\)"):
        files.pack()


def test_a_single_big_file_is_refused_before_it_is_read(tmp_path, monkeypatch):
    tree(tmp_path, {"big.py": "x" * 100})
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail("it was read"))
    with pytest.raises(Refused, match=r"big\.py \(100 bytes\)"):
        Collection(max_bytes=99).add_file(tmp_path / "big.py", "big.py", tmp_path)


def test_the_cap_can_be_raised():
    assert collection({}).max_bytes == 100 * 2**20
    assert collection({"GPUPOOL_SNAPSHOT_CAP": "2GiB"}).max_bytes == 2**31
    for bad in ("100", "0MiB", "-1MiB", "NaN", "1TB"):
        with pytest.raises(Refused, match="is not a size"):
            collection({"GPUPOOL_SNAPSHOT_CAP": bad})


def test_a_name_that_is_no_text_is_refused(tmp_path):
    with pytest.raises(Refused, match="not UTF-8"):
        Collection().add("a\udcff", Content(b""))


# -- folders -----------------------------------------------------------------------------------------


def test_a_folder_is_taken_by_its_ignore_rules(tmp_path):
    repository = tmp_path / "repository"
    tree(
        repository,
        {
            ".git/config": "",
            ".gitignore": "*.ckpt\n/sub/top.txt\n",
            "sub/.gitignore": "# comment\nbuild/\n*.log\n!keep.log\n",
            "sub/train.py": "",
            "sub/top.txt": "",
            "sub/model.ckpt": "",
            "sub/a.log": "",
            "sub/keep.log": "",
            "sub/build/x.py": "",
            "sub/deep/b.log": "",
            "sub/deep/.gitignore": "!b.log\n",
            "sub/__pycache__/x.pyc": "",
            "sub/.venv/pyvenv.cfg": "",
            "sub/.venv/lib/x.py": "",
            "sub/.gpupool/function.pkl": "",
            "other/x.py": "",
        },
    )
    sub = repository / "sub"
    (sub / "outside").symlink_to(repository / "other" / "x.py")
    (sub / "linked.py").symlink_to(sub / "train.py")
    (sub / "folder").symlink_to(repository / "other")
    os.mkfifo(sub / "fifo")
    files = Collection()
    add_folder(files, sub)
    assert sorted(files.files) == [
        ".gitignore",
        "deep/.gitignore",
        "deep/b.log",
        "keep.log",
        "linked.py",
        "train.py",
    ]


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.py", "a/b.py", True),
        ("/a.py", "b/a.py", False),
        ("a/b", "a/b", True),
        ("a/b", "x/a/b", False),
        ("**/b", "x/y/b", True),
        ("a/**", "a/x/y", True),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("[ab].py", "b.py", True),
        ("[!ab].py", "b.py", False),
        ("\\#x", "#x", True),
        ("\\!x", "!x", True),
        ("x  ", "x", True),
        ("x\\*", "x*", True),
        ("x\\*", "xy", False),
        ("a+b", "a+b", True),
        ("# x", "# x", False),
    ],
)
def test_ignore_patterns(pattern, path, matches):
    assert gitignore.ignored([("", gitignore.parse(pattern))], path, False) is matches


def test_a_pattern_with_a_slash_at_its_end_is_for_folders():
    rules = [("", gitignore.parse("build/"))]
    assert gitignore.ignored(rules, "x/build", True)
    assert not gitignore.ignored(rules, "x/build", False)


# -- the tar -----------------------------------------------------------------------------------------

NAMES = st.text("abcäß/._-", min_size=1, max_size=120).filter(
    lambda name: name.strip("/.") == name and "//" not in name
)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(NAMES, st.tuples(st.binary(max_size=50), st.booleans()), max_size=6), st.randoms())
def test_the_same_files_give_the_same_bytes_in_any_order(files, random):
    items = [(name, Content(*content)) for name, content in files.items()]
    first = pack(dict(items))
    random.shuffle(items)
    assert pack(dict(items)) == first
    assert first.sha256 == hashlib.sha256(first.data).hexdigest()
    with tarfile.open(fileobj=io.BytesIO(first.data)) as tar:
        members = tar.getmembers()
        assert [member.name for member in members] == sorted(files)
        for member in members:
            data, executable = files[member.name]
            assert (member.mtime, member.uid, member.gid, member.uname) == (0, 0, 0, "")
            assert member.mode == (0o755 if executable else 0o644)
            extracted = tar.extractfile(member)
            assert extracted is not None
            assert extracted.read() == data


def test_executable_files_stay_executable_and_payloads_are_not_the_users(tmp_path):
    tree(tmp_path, {"run": "#!/bin/sh\n"})
    (tmp_path / "run").chmod(0o700)
    files = Collection()
    files.add_file(tmp_path / "run", "run", tmp_path)
    files.add(".gpupool/cell.py", Content(b""))
    assert files.files["run"].executable
    assert files.pack().own_files == ("run",)
    assert snapshot.size_text(1536) == "1.5 KiB"
