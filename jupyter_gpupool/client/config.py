"""The user's own settings: which variables are always sent to jobs, and of what to write to the user.

Owns: one JSON file in the user's configuration folder. Never: anything of the pool's.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.client.files import write_whole

OCCASIONS = ("end", "fail", "start", "stop", "none")


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
    return _setting("always_send", environ)


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
    return _set("always_send", sorted(names), environ)


def notify(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the occasions of which a job tells that does not say; errors as in `always_send`."""
    return _setting("notify", environ)


def set_notify(occasions: Iterable[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """Choose these occasions, of `OCCASIONS`, in place of those before, and return them.

    Raises
    ------
    Refused
        There is no such occasion.
    """
    chosen = tuple(dict.fromkeys(occasions))
    for occasion in chosen:
        if occasion not in OCCASIONS:
            known = ", ".join(OCCASIONS)
            raise Refused(
                "invalid_option", f"Nobody tells of {occasion!r}.", hint=f"Choose of: {known}; or default."
            )
    if len(chosen) > 1 and "none" in chosen:
        raise Refused("invalid_option", "none stands alone.", hint="Leave out none, or the others.")
    return _set("notify", chosen, environ)


def _setting(name: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    path = config_file(environ)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return tuple(str(each) for each in found.get(name, ()))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, AttributeError, TypeError):
        raise Refused(
            "invalid_settings",
            f"Your settings in {path} cannot be read.",
            hint='They look like {"always_send": ["NAME"]}; correct or remove the file.',
        ) from None


def _set(name: str, values: Iterable[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    settings = {each: list(_setting(each, environ)) for each in ("always_send", "notify")}
    settings[name] = list(values)
    path = config_file(environ)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(path, json.dumps({each: found for each, found in settings.items() if found}, indent=2) + "\n")
    return tuple(settings[name])
