"""Which environment variables a job gets.

Owns: what belongs to the session and is left behind, and what looks like a credential and is held back.
Never: reading the process's environment by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from jupyter_gpupool.client.errors import Refused

_SESSION = re.compile(
    r"""(?x)
    (?: JPY_ | JUPYTER (?! _PATH | _DATA_DIR ) | KERNEL_ | GPUPOOL_ | PYDEVD_ | SSH_ | TMUX
      | XDG_SESSION_ | XDG_RUNTIME_DIR | SUDO_ | VSCODE_ | DBUS_ | BASH_FUNC_ | SLURM_ ) .*
    | _ | PWD | OLDPWD | SHLVL | COLUMNS | LINES | STY | WINDOWID | TERM_PROGRAM.* | TERM_SESSION_ID
    | PAGER | GIT_PAGER | CLICOLOR | CLICOLOR_FORCE | FORCE_COLOR
    | INVOCATION_ID | JOURNAL_STREAM | NOTIFY_SOCKET | LISTEN_FDS | LISTEN_PID | MANAGERPID | SYSTEMD_EXEC_PID
    | CUDA_VISIBLE_DEVICES | NVIDIA_VISIBLE_DEVICES
    """
)
_CREDENTIAL_NAME = re.compile(
    r"""(?xi)
    .* (?: TOKEN | SECRET | PASSWORD | PASSWD | PASSPHRASE | APIKEY ) [0-9]*
    | (?: .*_ )?
      (?: TOKEN | SECRETS? | PASSWORD | PASSWD | PASSPHRASE | PASS | PWD | PAT | CREDENTIALS? | COOKIE
        | AUTH | AUTHORIZATION | DSN
        | (?: API | ACCESS | SECRET | PRIVATE | SIGNING | ENCRYPTION | ACCOUNT | MASTER ) _? KEY (?: _?ID )?
      )
      (?: _.* )?
    """
)
_CREDENTIAL_VALUE = re.compile(
    r"""(?x)
      \b sk-[A-Za-z0-9_-]{16,}
    | \b (?: gh[pousr]_ | github_pat_ | glpat- | hf_ | npm_ | pypi-AgE | xox[abeoprs]- | dckr_pat_ )
      [A-Za-z0-9_-]{16,}
    | \b (?: AKIA | ASIA ) [0-9A-Z]{16} \b
    | \b AIza [0-9A-Za-z_-]{35}
    | \b eyJ [A-Za-z0-9_-]{8,} \. eyJ [A-Za-z0-9_-]{8,} \.
    | -----BEGIN [A-Z ]* PRIVATE [ ] KEY
    | [a-z][a-z0-9+.-]{0,30} :// [^/\s:@]* : [^/\s@]+ @
    """
)


def captured(
    environ: Mapping[str, str], send: Iterable[str] = (), always: Iterable[str] = ()
) -> tuple[dict[str, str], list[str]]:
    """Return the variables that a job gets, and the names of those held back.

    Parameters
    ----------
    environ : mapping
        The submitting process's environment.
    send : iterable of str
        What ``--env`` gave: ``NAME`` (as it is here) or ``NAME=VALUE``; sent whatever it looks like.
    always : iterable of str
        Names that the user's settings let pass.

    Raises
    ------
    Refused
        When a variable named without a value is not set, or has no name.
    """
    explicit = dict(_assignment(text, environ) for text in send)
    passing = set(always)
    kept, held_back = {}, []
    for name, value in sorted(environ.items()):
        if name in explicit or belongs_to_session(name, value):
            continue
        if name not in passing and (is_credential(name, value) or not _is_text(value)):
            held_back.append(name)
        else:
            kept[name] = value
    return {**kept, **explicit}, held_back


def belongs_to_session(name: str, value: str = "") -> bool:
    """Tell whether a variable describes the notebook or terminal at hand and would mislead a job."""
    return bool(_SESSION.fullmatch(name)) or (name == "MPLBACKEND" and "inline" in value)


def is_credential(name: str, value: str) -> bool:
    """Tell whether a variable looks like a password, key or token, by its name or by its value."""
    return bool(value) and bool(_CREDENTIAL_NAME.fullmatch(name) or _CREDENTIAL_VALUE.search(value))


def _assignment(text: str, environ: Mapping[str, str]) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise Refused("invalid_option", f"--env {text}: write NAME or NAME=VALUE.")
    if equals:
        return name, value
    if name not in environ:
        raise Refused(
            "invalid_option", f"--env {name}: this variable is not set here.", hint=f"Write {name}=VALUE."
        )
    return name, environ[name]


def _is_text(value: str) -> bool:
    """Tell whether a value can travel: bytes that are no UTF-8 cannot."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
