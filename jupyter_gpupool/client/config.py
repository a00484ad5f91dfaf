"""The user's own settings: which variables are always sent to jobs.

Owns: one JSON file in the user's configuration folder. Never: anything of the pool's.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.client.files import write_whole


def config_file(environ: Mapping[str, str]) -> Path:
    """Return where the settings are kept."""
    folder = environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(os.path.expanduser(folder)) / "gpupool" / "config.json"


def always_send(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of variables that are sent to jobs although they look like credentials.

    Raises
    ------
    Refused
        When the file cannot be read as settings.
    """
    path = config_file(environ)
    try:
        names = json.loads(path.read_text(encoding="utf-8"))["always_send"]
        return tuple(str(name) for name in names)
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, KeyError, TypeError):
        raise Refused(
            "invalid_settings",
            f"Your settings in {path} cannot be read.",
            hint='They look like {"always_send": ["NAME"]}; correct or remove the file.',
        ) from None


def set_always_send(name: str, environ: Mapping[str, str], *, send: bool = True) -> tuple[str, ...]:
    """Add a name to those that are always sent, or take it away, and return the list.

    Raises
    ------
    Refused
        When `name` cannot be the name of a variable.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise Refused("invalid_option", f"{name!r} is not the name of an environment variable.")
    names = set(always_send(environ)) - {name}
    if send:
        names.add(name)
    path = config_file(environ)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(path, json.dumps({"always_send": sorted(names)}, indent=2) + "\n")
    return tuple(sorted(names))
