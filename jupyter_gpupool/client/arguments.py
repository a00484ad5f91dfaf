"""How a line that somebody typed becomes a namespace, in a shell and in a notebook alike.

Owns: a parser that raises instead of ending the process, and the rule which words of a line belong
to the user's own program. Never: print.
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable, Sequence
from typing import NoReturn

from jupyter_gpupool.client.errors import Refused

ALIKE = 0.8  # from here on, an unknown option is taken for a mistyped one of the pool

_SENTENCES = (
    (r"the following arguments are required: ([^,]*).*", "{0} is missing."),
    (r"argument (\S+): expected .*argument.*", "{0} needs a value."),
    (r"unrecognized arguments: ([^-]\S*).*", "{0!r} is one argument too many."),
    (r"argument (?:\S+): (.* is not a .*)", "{0}."),
    (r"argument (\S+): invalid int value: (.*)", "{0} {1} is not a whole number."),
    (r"argument \S+: invalid choice: (.+) \(choose from (.*)\)", "{0} is not one of: {1}."),
    (r"argument (.*)", "{0}."),
)
_NEGATIVE = re.compile(r"-\.?\d")  # a value for the service to judge, such as -3h; argparse knows -3 only


class HelpAsked(Exception):  # noqa: N818 - nothing went wrong
    """Somebody typed ``--help``; the message is the text to show."""


class Parser(argparse.ArgumentParser):
    """A parser that answers a mistake with `Refused` and ``--help`` with `HelpAsked`.

    Parameters
    ----------
    prog
        The words before the arguments, as the user types them.
    description
        One sentence on what the verb does.
    """

    def __init__(self, prog: str, description: str = "") -> None:
        super().__init__(prog=prog, description=description, add_help=False, allow_abbrev=False)
        self.add_argument("-h", "--help", action="store_true", help="show this text")
        self._negative_number_matcher = _NEGATIVE

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse a line whose options and arguments may stand in any order.

        Raises
        ------
        Refused
            An option is unknown (the nearest is named), a value is missing or wrong.
        HelpAsked
            ``--help`` is among the words.
        """
        if "-h" in words or "--help" in words:
            raise HelpAsked(self.format_help())
        return self.parse_intermixed_args(list(words))

    def own(self, words: Sequence[str]) -> tuple[list[str], list[str]]:
        """Split a line into the pool's words, with the target, and those of the user's own program.

        Options of the pool may stand before or after the target. What follows ``--`` belongs to the
        program; without ``--``, so does what follows the target, if its options are not the pool's.

        Raises
        ------
        Refused
            Options after the target are partly the pool's, or look like a mistyped one.
        """
        if "--" in words:
            cut = words.index("--")
            return list(words[:cut]), list(words[cut + 1 :])
        after = self._target(words) + 1
        options = [word.split("=", 1)[0] for word in words[after:] if re.match(r"--?[A-Za-z]", word)]
        if all(option in self._option_string_actions for option in options):
            return list(words), []
        for option in options:
            self._refuse_if_meant_for_the_pool(option, words[after - 1])
        return list(words[:after]), list(words[after:])

    def error(self, message: str) -> NoReturn:
        """Refuse with one sentence, in the product's words where argparse has its own."""
        for pattern, say in _SENTENCES:
            found = re.fullmatch(pattern, message)
            if found:
                text = say.format(*found.groups())
                break
        else:
            text = f"{message}."
        unknown = re.match(r"unrecognized arguments: (-[^ =]+)", message)
        if unknown:
            text = f"there is no option {unknown[1]}.{nearest(unknown[1], self._option_string_actions)}"
        raise Refused("invalid_option", f"{self.prog}: {text}")

    def _target(self, words: Sequence[str]) -> int:
        """Return the position of the first word that is neither an option nor its value."""
        position = 0
        while position < len(words) and words[position].startswith("-"):
            action = self._option_string_actions.get(words[position])
            position += 2 if action is not None and action.nargs != 0 else 1
        return position

    def _refuse_if_meant_for_the_pool(self, option: str, target: str) -> None:
        known = self._option_string_actions
        if option in known:
            problem = f"{option} stands after {target}, among options that are not the pool's."
            hint = f"Put the pool's options before {target}, or -- before its own."
        elif option.startswith("--") and difflib.get_close_matches(option, known, n=1, cutoff=ALIKE):
            problem = f"There is no option {option}.{nearest(option, known)}"
            hint = f"If it is meant for {target}, put -- before it."
        else:
            return
        raise Refused("invalid_option", problem, hint=hint)


def job_id(text: str) -> int | str:
    """Read a job's number, written ``17`` or ``#17``, or a task ``12[3]``; ``last`` stays as it is."""
    if text == "last":
        return text
    match = re.fullmatch(r"#?([1-9][0-9]*)(\[[0-9]+\])?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a job's number, such as 17 or 12[3], nor last")
    return match[1] + match[2] if match[2] else int(match[1])


def nearest(name: str, names: Iterable[str]) -> str:
    """Say which known name comes nearest (`` Did you mean jobs?``), or nothing."""
    found = difflib.get_close_matches(name, list(names), n=1)
    return f" Did you mean {found[0]}?" if found else ""
