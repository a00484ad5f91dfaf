"""Become the account of the pool's service, then its program: ``python -m … ACCOUNT PROGRAM ARGS``.

Owns: the drop from a Hub run by root to the service's account. The Hub ends when a service's program
cannot be executed, so it executes this one, which always can be; what goes wrong then is one line in
the Hub's log, and the Hub tries again. Never: an account of a user's (see the engine).
"""

from __future__ import annotations

import os
import pwd
import sys

from jupyter_gpupool.engines.local.identity import Account, drop


def main(account: str, *command: str) -> None:
    """Execute `command` as `account`; end with a sentence where that is impossible."""
    try:
        become(account)
        os.execv(command[0], command)
    except KeyError:
        sys.exit(f"The pool's service cannot start: this machine has no account {account!r}.")
    except OSError as error:
        sys.exit(f"The pool's service cannot start as {account!r}: {command[0]}: {error.strerror}.")


def become(account: str) -> None:
    """Take the account's groups, user, home and folder, for good."""
    taken = Account.of(pwd.getpwnam(account))
    drop(taken)
    os.environ.update(taken.environment())
    os.chdir("/")


if __name__ == "__main__":
    main(*sys.argv[1:])
