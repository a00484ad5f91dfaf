"""A snapshot becomes exactly its plain files, inside its own folder, or nothing is run."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_gpupool.engines.local.unpack import BadSnapshotError, unpack


def _tar(*members: tuple[str, dict[str, object], bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, fields, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            for field, value in fields.items():
                setattr(member, field, value)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def unpacked(tmp_path: Path) -> Callable[..., Path]:
    def run(content: bytes, sha256: str | None = None, **caps: int) -> Path:
        file, into = tmp_path / "snapshot.tar", tmp_path / "code"
        file.write_bytes(content)
        into.mkdir()
        with file.open("rb") as opened:
            unpack(opened, sha256 or hashlib.sha256(content).hexdigest(), into, **caps)
        return into

    return run


def test_plain_files_and_folders(unpacked):
    into = unpacked(
        _tar(
            ("pkg", {"type": tarfile.DIRTYPE, "mode": 0o755}, b""),
            ("pkg/a.py", {"mode": 0o644}, b"a = 1\n"),
            ("run.sh", {"mode": 0o4755, "uid": 1234}, b"#!/bin/sh\n"),
        )
    )
    assert (into / "pkg" / "a.py").read_bytes() == b"a = 1\n"
    assert (into / "run.sh").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize(
    ("name", "fields", "says"),
    [
        ("/etc/absolute", {}, "outside"),
        ("../above", {}, "outside"),
        ("a/../../above", {}, "outside"),
        ("door", {"type": tarfile.SYMTYPE, "linkname": "/etc"}, "neither a plain file"),
        ("door", {"type": tarfile.LNKTYPE, "linkname": "pkg"}, "neither a plain file"),
        ("tube", {"type": tarfile.FIFOTYPE}, "neither a plain file"),
        ("disk", {"type": tarfile.BLKTYPE, "devmajor": 8}, "neither a plain file"),
        ("null", {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3}, "neither a plain file"),
        (
            "huge",
            {"pax_headers": {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "99"}},
            "plain file",
        ),
    ],
)
def test_a_hostile_member_is_refused_and_nothing_after_it_is_written(unpacked, tmp_path, name, fields, says):
    content = _tar((name, fields, b"0\n" + b"\0" * 510 if name == "huge" else b""), ("after", {}, b"x"))
    with pytest.raises(BadSnapshotError, match=says) as error:
        unpacked(content)
    assert name in str(error.value)
    assert list((tmp_path / "code").iterdir()) == []
    assert not (tmp_path / "above").exists()


def test_a_file_that_stands_where_a_folder_should(unpacked):
    with pytest.raises(BadSnapshotError, match="not a usable tar"):
        unpacked(_tar(("a", {}, b"x"), ("a/b", {}, b"x")))


def test_one_name_twice(unpacked):
    with pytest.raises(BadSnapshotError, match="not a usable tar"):
        unpacked(_tar(("a", {}, b"x"), ("a", {}, b"y")))


def test_modes_are_0644_or_0755_whatever_the_tar_says(unpacked):
    folder = unpacked(_tar(("plain", {"mode": 0o600}, b"x"), ("tool", {"mode": 0o4777}, b"x")))
    assert (folder / "plain").stat().st_mode & 0o7777 == 0o644
    assert (folder / "tool").stat().st_mode & 0o7777 == 0o755


def test_the_wrong_digest(unpacked):
    with pytest.raises(BadSnapshotError, match="SHA-256"):
        unpacked(_tar(("a", {}, b"x")), sha256="0" * 64)


@pytest.mark.parametrize("content", [b"", b"x" * 600, _tar(("a", {}, b"x" * 5000))[:2000]])
def test_what_is_no_tar(unpacked, content):
    with pytest.raises(BadSnapshotError, match="not a usable tar"):
        unpacked(content)


def test_the_caps(unpacked):
    content = _tar(*((str(number), {}, b"x") for number in range(3)))
    with pytest.raises(BadSnapshotError, match="more than the 2 files"):
        unpacked(content, max_files=2)


def test_the_cap_on_bytes(unpacked):
    with pytest.raises(BadSnapshotError, match="1 MiB allowed"):
        unpacked(_tar(("a", {}, b"x" * (1 << 20)), ("b", {}, b"x")), max_bytes=1 << 20)
