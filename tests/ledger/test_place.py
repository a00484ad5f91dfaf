"""Where a ledger may lie, and that it has one writer."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from jupyter_gpupool.ledger import Ledger, LedgerError, LedgerUnavailable
from jupyter_gpupool.ledger.place import Mount, file_system, parse_mountinfo, refuse_network

MOUNTINFO = """\
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
31 27 0:40 / /home rw,relatime shared:2 master:7 - nfs4 files:/home rw,vers=4.2
32 31 254:9 /a /home/ada/my\\040disk rw - xfs /dev/vdb rw
33 27 0:41 / /mnt rw - ext4 /dev/vdc rw
34 33 0:42 / /mnt rw - fuse.sshfs ada@far:/ rw
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/srv/pool", Mount("/", "ext4")),
        ("/home/ada", Mount("/home", "nfs4")),
        ("/homework", Mount("/", "ext4")),
        ("/home/ada/my disk/pool", Mount("/home/ada/my disk", "xfs")),
        ("/mnt/pool", Mount("/mnt", "fuse.sshfs")),  # mounted over the ext4 there
    ],
)
def test_the_mount_of_a_path(path, expected):
    assert file_system(Path(path), parse_mountinfo(MOUNTINFO)) == expected


NETWORK = (
    "nfs nfs4 cifs smb3 smbfs 9p afs ceph beegfs gpfs lustre glusterfs virtiofs ocfs2 gfs2"
    " fuse.sshfs fuse.glusterfs fuse.ceph-fuse fuse.s3fs fuse.rclone fuse.juicefs"
)


@pytest.mark.parametrize("fstype", NETWORK.split())
def test_network_file_systems_are_refused(tmp_path, fstype):
    with pytest.raises(
        LedgerError, match=rf"network file system \({fstype}, mounted at {tmp_path}\).*GPUPOOL_HOME"
    ):
        Ledger.open(tmp_path / "ledger.sqlite", now=0, boot_id="b", mounts=[Mount(str(tmp_path), fstype)])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "fstype", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "apfs", "fuseblk", "fuse.fuse-overlayfs"]
)
def test_local_file_systems_are_welcome(tmp_path, fstype):
    refuse_network(tmp_path, [Mount("/", "nfs4"), Mount(str(tmp_path), fstype)])


def test_a_link_to_a_network_file_system_is_seen_through(tmp_path):
    far = tmp_path / "far"
    far.mkdir()
    (tmp_path / "near").symlink_to(far)
    with pytest.raises(LedgerError, match="nfs4"):
        Ledger.open(tmp_path / "near" / "l.sqlite", now=0, boot_id="b", mounts=[Mount(str(far), "nfs4")])


def test_a_system_without_a_mount_table_is_trusted(tmp_path):
    refuse_network(tmp_path, [])


def test_the_files_are_the_owners_alone(opened):
    old = os.umask(0)
    try:
        opened.reopen()
    finally:
        os.umask(old)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in opened.path.parent.iterdir()}
    assert modes == dict.fromkeys(
        ("ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm", "ledger.lock"), 0o600
    )
    assert stat.S_IMODE(opened.path.parent.stat().st_mode) == 0o700


def test_a_second_writer_is_refused_and_told_who_writes(opened):
    with pytest.raises(LedgerError, match=rf"in use by process {os.getpid()} \(since 1970-01-01T00:00:00Z\)"):
        Ledger.open(opened.path, now=5, boot_id="b")
    opened.reopen()


def test_a_writer_in_another_process_is_named_until_it_is_gone(opened, writer):
    opened.ledger.close()
    other = writer(opened.path)
    other.acknowledged()
    with pytest.raises(LedgerError, match=f"in use by process {other.pid} "):
        Ledger.open(opened.path, now=5, boot_id="b")
    other.kill()
    opened.ledger = Ledger.open(opened.path, now=5, boot_id="b")


def test_a_failed_open_leaves_the_lock_free(opened):
    opened.ledger.close()
    content = opened.path.read_bytes()
    opened.path.write_bytes(b"this is no database, whatever it is called" * 100)
    with pytest.raises(LedgerUnavailable, match="file is not a database"):
        Ledger.open(opened.path, now=5, boot_id="b")
    opened.path.write_bytes(content)
    opened.ledger = Ledger.open(opened.path, now=5, boot_id="b")


def test_a_lock_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "ledger.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LedgerUnavailable, match=r"ledger.lock cannot be had"):
        Ledger.open(tmp_path / "ledger.sqlite", now=5, boot_id="b")
    assert not (tmp_path / "elsewhere").exists()
