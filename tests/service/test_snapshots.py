"""A snapshot is there whole and verified, or not at all; and only for who sent it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from jupyter_gpupool.service.errors import ApiError
from jupyter_gpupool.service.snapshots import SnapshotStore

DATA = b"some code"
DIGEST = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "snapshots", cap_mib=1)


def send(store: SnapshotStore, data: bytes, digest: str, owner: str = "ada") -> None:
    upload = store.receive(owner, digest)
    try:
        upload.write(data)
        upload.finish()
    finally:
        upload.abandon()


def files(store: SnapshotStore) -> list[str]:
    return sorted(file.name for file in store.root.rglob("*") if file.is_file())


def test_sent_and_found_by_its_owner_only(store: SnapshotStore) -> None:
    assert not store.has("ada", DIGEST)
    send(store, DATA, DIGEST)
    assert store.has("ada", DIGEST)
    assert not store.has("bob", DIGEST)
    assert store.path("ada", DIGEST).read_bytes() == DATA
    assert files(store) == [f"{DIGEST}.tar"]


def test_other_bytes_than_named_are_refused(store: SnapshotStore) -> None:
    with pytest.raises(ApiError) as caught:
        send(store, b"other", DIGEST)
    assert (caught.value.status, caught.value.code) == (422, "digest_mismatch")
    assert files(store) == []


def test_over_the_cap(store: SnapshotStore) -> None:
    with pytest.raises(ApiError) as caught:
        send(store, b"x" * (1024 * 1024 + 1), DIGEST)
    assert (caught.value.status, caught.value.used, caught.value.limit) == (413, 2, 1)
    assert files(store) == []


@pytest.mark.parametrize("digest", ["", "x" * 64, DIGEST.upper(), "../../../../etc/passwd", DIGEST + "0"])
def test_only_a_digest_names_a_snapshot(store: SnapshotStore, digest: str) -> None:
    with pytest.raises(ApiError):
        store.has("ada", digest)


def test_an_owner_is_no_path(store: SnapshotStore) -> None:
    send(store, DATA, DIGEST, owner="../bob")
    assert store.path("../bob", DIGEST).parent.parent == store.root


def test_unused_ones_are_dropped(store: SnapshotStore) -> None:
    send(store, DATA, DIGEST)
    send(store, b"used", used := hashlib.sha256(b"used").hexdigest())
    for owner, digest in (("ada", DIGEST), ("ada", used)):
        os.utime(store.path(owner, digest), (1000, 1000))
    assert store.drop_unused([("ada", used)], older_than=999) == 0
    assert store.drop_unused([("ada", used)], older_than=2000) == 1
    assert files(store) == [f"{used}.tar"]
