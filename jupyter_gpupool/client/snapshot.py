"""What a job takes along: the script and its modules, or a folder, or files made in memory.

Owns: which files belong in a snapshot, under which names, and how much is too much. Never: the format
(see `jupyter_gpupool.client.tarball`), or a file outside the folders that were named.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

from jupyter_gpupool.client import gitignore
from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.client.modules import Import, imports, local_modules
from jupyter_gpupool.client.tarball import RESERVED, Content, Snapshot, pack
from jupyter_gpupool.client.text import plural

MAX_FILES = 10_000
MAX_BYTES = 100 * 2**20
NEVER = frozenset({".git", ".hg", ".svn", "__pycache__", ".ipynb_checkpoints", "node_modules", RESERVED})
Rules = tuple[str, list[gitignore.Rule]]
_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


@dataclass
class Collection:
    """The files of a snapshot while it is made; adding stops where the caps do.

    Attributes
    ----------
    max_bytes, max_files : int
        The caps.
    """

    max_bytes: int = MAX_BYTES
    max_files: int = MAX_FILES
    files: dict[str, Content] = field(default_factory=dict)

    def add(self, name: str, content: Content) -> None:
        """Take a file; of two with one name the first stays."""
        try:
            name.encode("utf-8")
        except UnicodeEncodeError:
            raise Refused("invalid_snapshot", f"The file name {name!r} is not UTF-8.") from None
        self.files.setdefault(name, content)

    def add_file(self, path: Path, name: str, inside: Path) -> None:
        """Take a regular file that lies, links followed, under `inside`."""
        real = regular_file(path, inside)
        size = real.stat().st_size
        if size > self.max_bytes:  # before it is read into memory
            check_caps({name: size}, self)
        self.add(name, Content(real.read_bytes(), os.access(real, os.X_OK)))

    def pack(self) -> Snapshot:
        """Return the snapshot.

        Raises
        ------
        Refused
            When it is over a cap; its biggest entries are named.
        """
        check_caps({name: len(content.data) for name, content in self.files.items()}, self)
        return pack(self.files)


def collection(environ: Mapping[str, str]) -> Collection:
    """Return an empty collection with the cap that ``GPUPOOL_SNAPSHOT_CAP`` names (100 MiB by default)."""
    text = environ.get("GPUPOOL_SNAPSHOT_CAP")
    if not text:
        return Collection()
    found = re.fullmatch(r"([1-9]\d*) ?(KiB|MiB|GiB)", text.strip())
    if found is None:
        raise Refused(
            "invalid_option", f"GPUPOOL_SNAPSHOT_CAP={text} is not a size.", hint="Write 200MiB or 1GiB."
        )
    return Collection(max_bytes=int(found[1]) * _UNITS[found[2]])


def locate_script(path: str, workdir: Path) -> tuple[Path, Path, str]:
    """Return a script's file, the root of its snapshot, and its name there.

    A script under `workdir` keeps its place below it; one from elsewhere comes with its own folder as root.

    Raises
    ------
    Refused
        When it is missing, is no regular file, or lies behind a link that leads outside.
    """
    script = workdir / os.path.expanduser(path)
    script = Path(os.path.normpath(script))
    root = workdir if workdir in script.parents else script.parent
    regular_file(script, root)
    return script, root, script.relative_to(root).as_posix()


def add_script(files: Collection, script: Path, root: Path, workdir: Path) -> None:
    """Take a script and the local modules it imports, transitively."""
    files.add_file(script, script.relative_to(root).as_posix(), root)
    if script.suffix in (".py", ".pyw", ""):
        source = script.read_text(encoding="utf-8", errors="replace")
        add_modules(files, imports(source), [script.parent, root, workdir], root)


def add_modules(files: Collection, found: Iterable[Import], roots: Iterable[Path], top: Path) -> None:
    """Take the local modules behind `found`: under `top` by their place there, others by their module's."""
    for path, root in local_modules(found, roots).items():
        inside = top if top in path.parents else root
        files.add_file(path, path.relative_to(inside).as_posix(), inside)


def add_folder(files: Collection, folder: Path) -> None:
    """Take a folder by its ``.gitignore`` rules, without virtual environments and links that lead outside.

    Raises
    ------
    Refused
        When it is over a cap (found before anything is read; its biggest entries are named).
    """
    sizes = dict(_walk(folder))
    check_caps(sizes, files)
    for name in sizes:
        files.add_file(folder / name, name, folder)


def regular_file(path: Path, inside: Path) -> Path:
    """Return the real path of a regular file that lies under `inside`.

    Raises
    ------
    Refused
        With the reason, in one sentence.
    """
    try:
        real = path.resolve(strict=True)
        mode = real.stat().st_mode
    except FileNotFoundError:
        raise Refused("invalid_script", f"There is no file {path}.") from None
    except (OSError, RuntimeError, ValueError) as error:
        raise Refused(
            "invalid_script", f"{path} cannot be read: {getattr(error, 'strerror', error)}."
        ) from None
    if inside.resolve() not in real.parents:
        hint = "Submit the file itself, or copy it."
        raise Refused("invalid_script", f"{path} leads by a link to {real}, outside {inside}.", hint=hint)
    if stat.S_ISDIR(mode):
        raise Refused("invalid_script", f"{path} is a folder, not a file.", hint="Name the script in it.")
    if not stat.S_ISREG(mode):
        kind = "a fifo" if stat.S_ISFIFO(mode) else "not a regular file"
        raise Refused("invalid_script", f"{path} is {kind}; a job takes regular files only.")
    if not os.access(real, os.R_OK):
        raise Refused("invalid_script", f"{path} cannot be read: permission denied.")
    return real


def check_caps(sizes: Mapping[str, int], caps: Collection) -> None:
    """Refuse what is over a cap, naming the entries that weigh most."""
    total = sum(sizes.values())
    if total > caps.max_bytes:
        weights = _by_entry(sizes)
        raise Refused(
            "snapshot_too_big",
            f"What the job would take along is {size_text(total)}, over the cap of "
            f"{size_text(caps.max_bytes)}; the biggest entries: {_biggest(weights, size_text)}.",
            used=total,
            limit=caps.max_bytes,
            unit="bytes",
            hint="List them in .gitignore (the job can still read them in the working folder), "
            "or raise GPUPOOL_SNAPSHOT_CAP.",
        )
    if len(sizes) > caps.max_files:
        counts = _by_entry(dict.fromkeys(sizes, 1))
        raise Refused(
            "snapshot_too_big",
            f"What the job would take along is {len(sizes):,} files, over the cap of {caps.max_files:,}; "
            f"the biggest entries: {_biggest(counts, lambda count: f'{count:,} files')}.",
            used=len(sizes),
            limit=caps.max_files,
            unit="files",
            hint="List them in .gitignore; the job can still read them in the working folder.",
        )


def size_text(count: int) -> str:
    """Write a number of bytes for people."""
    for unit in ("GiB", "MiB", "KiB"):
        if count >= _UNITS[unit]:
            return f"{count / _UNITS[unit]:.1f} {unit}"
    return plural(count, "byte")


def _walk(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield the name and size of each file that belongs to a folder."""
    inside = folder.resolve()
    lead, rules = _rules_above(inside)
    for here, folders, names in os.walk(inside):
        below = "" if Path(here) == inside else Path(here).relative_to(inside).as_posix() + "/"
        rules = [(owner, own) for owner, own in rules if (lead + below).startswith(owner)]
        rules += _rules_of(Path(here), lead + below)
        folders[:] = sorted(
            name
            for name in folders
            if name not in NEVER
            and not os.path.exists(os.path.join(here, name, "pyvenv.cfg"))
            and not gitignore.ignored(rules, lead + below + name, True)
        )
        for name in sorted(names):
            path = Path(here, name)
            if not gitignore.ignored(rules, lead + below + name, False) and _belongs(path, inside):
                yield below + name, path.stat().st_size


def _rules_above(folder: Path) -> tuple[str, list[Rules]]:
    """Return where `folder` lies in its git repository, and the rules that hold there from above."""
    top = next((place for place in (folder, *folder.parents) if (place / ".git").exists()), folder)
    rules: list[Rules] = []
    place, lead = top, ""
    for part in folder.relative_to(top).parts:
        rules += _rules_of(place, lead)
        place, lead = place / part, f"{lead}{part}/"
    return lead, rules


def _rules_of(folder: Path, name: str) -> list[Rules]:
    try:
        text = (folder / ".gitignore").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [(name, gitignore.parse(text))]


def _belongs(path: Path, inside: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode) and inside in path.resolve().parents
    except (OSError, RuntimeError):
        return False


def _by_entry(sizes: Mapping[str, int]) -> dict[str, int]:
    """Add sizes up by the first folder of each name."""
    weights: dict[str, int] = {}
    for name, size in sizes.items():
        first, slash, _ = name.partition("/")
        weights[first + slash] = weights.get(first + slash, 0) + size
    return weights


def _biggest(weights: Mapping[str, int], text: Callable[[int], str]) -> str:
    ranked = sorted(weights.items(), key=lambda item: (-item[1], item[0]))[:5]
    return ", ".join(f"{name} ({text(weight)})" for name, weight in ranked)
