"""What a forked process does first and last.

Owns: that it keeps no descriptor of its parent's but one, and never goes back into its parent's code. Never:
what it is for.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn


def never_return(body: Callable[[], None]) -> NoReturn:
    """Run `body` in a forked process, which must not go back into its parent's code."""
    status = 1
    try:
        body()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def close_all_but(kept: int) -> None:
    """Close every descriptor but `kept` and the standard streams."""
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        if descriptor > 2 and descriptor != kept:
            with suppress(OSError):
                os.close(descriptor)
