"""One owner for each real card of a host.

Owns: a lock file per GPU UUID, held (flock) as long as the pool's service lives; the kernel lets
go of it however that service ends. Never: deleting or waiting; a second owner is refused at once.

Where root has made ``/run/gpupool``, the locks there bind every pool of the host. Elsewhere they
are advisory, in a folder under ``/tmp`` that any user may have made, and are labelled so.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from .base import DevicesError

SYSTEM_FOLDER = Path("/run/gpupool")
ADVISORY_FOLDER = Path("/tmp/gpupool-locks")

_UUID = re.compile(r"[A-Za-z0-9-]{1,100}")
_OWNER_BYTES = 4096
_SHARED_FOLDER = 0o1777
_SHARED_FILE = 0o666


class CardTakenError(DevicesError):
    """A card belongs to another pool; the sentence names its user, process and home."""


class CardLocks:
    """The locks of one pool; `advisory` says that root's folder was not there."""

    def __init__(self, descriptors: list[int], *, advisory: bool) -> None:
        self._descriptors = descriptors
        self.advisory = advisory

    @classmethod
    def take(
        cls,
        uuids: Iterable[str],
        *,
        home: Path,
        system: Path = SYSTEM_FOLDER,
        advisory: Path = ADVISORY_FOLDER,
    ) -> CardLocks:
        """Take every card for the pool that lives in `home`, or none.

        Where the system's locks are there, the advisory ones are still taken, so that a pool which
        was started before root made the folder is seen; but nothing that a user can put under
        ``/tmp``, short of holding a lock, then stands in the way.

        Raises
        ------
        CardTakenError
            Another pool owns one of the cards.
        DevicesError
            A folder or lock file is not what it should be; the sentence says what to remove.
        """
        wanted = list(uuids)
        binding = _lock_all(wanted, system, home) if _is_binding(system) else None
        try:
            advised = _lock_all(wanted, advisory, home)
        except DevicesError as error:
            if binding is None:
                raise
            if isinstance(error, CardTakenError):
                _close(binding)
                raise
            advised = []
        return cls([*(binding or []), *advised], advisory=binding is None)

    def describe(self) -> str:
        """Return one sentence on whom the locks bind."""
        if self.advisory:
            return (
                "The locks on this machine's cards are advisory: they stop a second pool by mistake, "
                f"not one by intent; an administrator makes them binding by creating {SYSTEM_FOLDER}."
            )
        return f"This machine's cards are locked for this pool in {SYSTEM_FOLDER}."

    def release(self) -> None:
        """Give the cards back; safe to call twice."""
        _close(self._descriptors)
        self._descriptors = []


def _is_binding(system: Path) -> bool:
    """Tell whether root's folder is there; root makes it."""
    return os.geteuid() == 0 or system.is_dir()


def _lock_all(uuids: list[str], path: Path, home: Path) -> list[int]:
    folder = _open_folder(path)
    descriptors: list[int] = []
    try:
        descriptors.extend(_lock(folder, path, uuid, home) for uuid in uuids)
    except BaseException:
        _close(descriptors)
        raise
    finally:
        os.close(folder)
    return descriptors


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _open_folder(path: Path) -> int:
    """Open, or make, a folder in which all may create files and none may remove another's."""
    try:
        os.mkdir(path, 0o700)
        made = True
    except FileExistsError:
        made = False
    except OSError as error:
        raise DevicesError(
            f"The folder {path} for the locks of cards cannot be made: {error.strerror}."
        ) from None
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise DevicesError(
            f"{path} should be a folder for the locks of cards, but cannot be opened as one "
            f"({error.strerror}): have it removed."
        ) from None
    if made:
        os.fchmod(folder, _SHARED_FOLDER)
    mode = os.fstat(folder).st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        os.close(folder)
        raise DevicesError(f"{path} lets everyone remove the locks of others: set its mode to 1777.")
    return folder


def _lock(folder: int, path: Path, uuid: str, home: Path) -> int:
    """Take one card's lock and write the owner's name into it."""
    if not _UUID.fullmatch(uuid):
        raise DevicesError(f"{uuid!r} is no UUID of a GPU, so it cannot be locked.")
    descriptor = _open_file(folder, path / uuid)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = _owner(descriptor)
        os.close(descriptor)
        raise CardTakenError(
            f"GPU {uuid} already belongs to a pool {owner}: use that pool, "
            "or have its owner end it with “jupyter gpupool stop”."
        ) from None
    me = {"user": _user(), "pid": os.getpid(), "home": str(home)}
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(me).encode(), 0)
    return descriptor


def _open_file(folder: int, path: Path) -> int:
    """Open a lock file, made if need be, and refuse anything but a plain file with one name."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        try:
            descriptor = os.open(path.name, flags | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
            os.fchmod(descriptor, _SHARED_FILE)
        except FileExistsError:
            descriptor = os.open(path.name, flags, dir_fd=folder)
    except OSError as error:
        raise DevicesError(
            f"The lock {path} cannot be opened ({error.strerror}): have it removed, "
            "and see that its folder has the mode 1777."
        ) from None
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1:
        os.close(descriptor)
        raise DevicesError(f"The lock {path} is not a plain file with one name: have it removed.")
    return descriptor


def _owner(descriptor: int) -> str:
    """Return what the holder wrote about itself, as words; anyone can write there, so it is only shown."""
    try:
        said = json.loads(os.pread(descriptor, _OWNER_BYTES, 0))
        words = f"of {said['user']} (process {said['pid']}, home {said['home']})"
    except (ValueError, KeyError, TypeError, RecursionError):
        return "of somebody who has not left a name"
    return "".join(character if character.isprintable() else "?" for character in words)


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
