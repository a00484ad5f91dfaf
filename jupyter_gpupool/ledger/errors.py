"""What the ledger refuses, each with one sentence for a person."""

from __future__ import annotations


class LedgerError(Exception):
    """The ledger refuses: its text says what is wrong and what to do."""


class LedgerUnavailable(LedgerError):  # noqa: N818 (reads as the sentence it carries)
    """The disk is full, read-only or broken; nothing was changed, and the same call may be tried again."""


class InUse(LedgerError):  # noqa: N818 (reads as the sentence it carries)
    """Another process writes the ledger; the text names it."""


class IllegalTransition(LedgerError):  # noqa: N818 (reads as the sentence it carries)
    """A state may not follow another, or the message is about an attempt that is over."""


class Overbooked(LedgerError):  # noqa: N818 (reads as the sentence it carries)
    """A placement would give a card's memory, compute or exclusiveness away twice."""


class UnknownId(LedgerError, KeyError):  # noqa: N818 (as above)
    """No job, session or lease has this number."""

    def __str__(self) -> str:
        return str(self.args[0])
