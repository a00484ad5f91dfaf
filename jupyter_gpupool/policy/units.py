"""How sizes, durations, counts and shares are written, and what a slice costs.

Owns: the text of an amount and its integer (MiB, seconds, milli-GPU, milli-CPU).
Never: pydantic, files, or a guess at a missing unit.
"""

from __future__ import annotations

import re
from fractions import Fraction
from math import gcd

MIN_SLICE_MIB = 256
LONGEST = 3650 * 86400

_MIB_OF = {"MiB": 1, "Mi": 1, "GiB": 1024, "Gi": 1024, "TiB": 1024 * 1024, "Ti": 1024 * 1024}
_SECONDS_OF = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_NUMBER = re.compile(r"\d{1,12}(\.\d{1,9})?")
_NOT_FINITE = re.compile(r"[+-]?\.?(nan|inf|infinity)", re.IGNORECASE)
_AMOUNT = re.compile(r"(?P<number>[+-]?[\d.]+)\s*(?P<unit>[A-Za-z%]*)")
_DURATION = re.compile(r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?")


class UnitError(ValueError):
    """Something written in a way that cannot be understood or allowed.

    Attributes
    ----------
    message : str
        What is wrong, with the numbers: one sentence.
    remedy : str
        What to write instead: one sentence.
    """

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message} {remedy}")
        self.message = message
        self.remedy = remedy


def parse_size(
    text: object, *, what: str, minimum: int = 1, maximum: int | None = None, of: str = "a card"
) -> int:
    """Return a size such as ``4GiB``, ``4096MiB``, ``4Gi`` or ``1.5TiB`` in MiB.

    Parameters
    ----------
    minimum, maximum : int
        Least and greatest size allowed, in MiB.
    of : str
        What has only `maximum`; named in the error.

    Raises
    ------
    UnitError
        No or an unknown unit, zero, negative, NaN, no whole number of MiB, or out of bounds.
    """
    written = _written(text)
    _refuse_nonsense(written, what, "Write a size such as 4GiB or 4096MiB.")
    match = _AMOUNT.fullmatch(written)
    if match is None or _NUMBER.fullmatch(match["number"]) is None:
        raise UnitError(f'{what} "{written}" is not a size.', "Write a size such as 4GiB or 4096MiB.")
    number, unit = match["number"], match["unit"]
    if Fraction(number) == 0:
        raise UnitError(f'{what} "{written}" is zero.', "Write a size above zero, or leave it out.")
    if not unit:
        raise UnitError(f'{what} "{written}" has no unit.', f"Write {number}GiB or {number}MiB.")
    if unit not in _MIB_OF:
        raise UnitError(
            f'{what} "{written}" has the unknown unit "{unit}".', f"Write MiB, GiB or TiB: {number}GiB."
        )
    mib = Fraction(number) * _MIB_OF[unit]
    if mib.denominator != 1:
        raise UnitError(
            f'{what} "{written}" is not a whole number of MiB.', f"Write {max(1, round(mib))}MiB."
        )
    size = int(mib)
    if size < minimum:
        raise UnitError(
            f'{what} "{written}" is less than the least allowed, {format_size(minimum)}.',
            f"Ask for {format_size(minimum)} or more.",
        )
    if maximum is not None and size > maximum:
        raise UnitError(
            f'{what} "{written}" is more than {of} has: {format_size(maximum)}.',
            f"Ask for {format_size(maximum)} or less.",
        )
    return size


def parse_duration(text: object, *, what: str, zero: bool = False) -> int:
    """Return a duration such as ``8h``, ``90m``, ``3d``, ``1h30m`` or ``45s`` in seconds.

    Parameters
    ----------
    zero : bool
        Whether it may be zero.

    Raises
    ------
    UnitError
        No or an unknown unit, negative, NaN, zero, or above ten years.
    """
    written = _written(text)
    _refuse_nonsense(written, what, "Write a duration such as 8h, 90m or 1h30m.")
    without_unit = re.fullmatch(r"\d{1,9}", written)
    match = _DURATION.fullmatch(f"{written}s" if without_unit else written)
    if match is None or not written:
        raise UnitError(
            f'{what} "{written}" is not a duration.', "Write days, hours, minutes: 3d, 8h, 1h30m."
        )
    seconds = sum(int(n or 0) * s for n, s in zip(match.groups(), _SECONDS_OF.values(), strict=True))
    if seconds == 0 and not zero:
        raise UnitError(f'{what} "{written}" is zero.', "Write a duration such as 8h, 90m or 1h30m.")
    if without_unit:
        raise UnitError(f'{what} "{written}" has no unit.', f"Write {written}h, {written}m or {written}s.")
    if seconds > LONGEST:
        raise UnitError(f'{what} "{written}" is too long.', f"Write {format_duration(LONGEST)} or less.")
    return seconds


def parse_count(text: object, *, what: str, minimum: int = 0, maximum: int | None = None) -> int:
    """Return a whole number, for example of cards or jobs.

    Raises
    ------
    UnitError
        Not a whole number, negative, NaN, or out of bounds.
    """
    written = _written(text)
    _refuse_nonsense(written, what, f"Write a whole number, {minimum} or more.")
    if re.fullmatch(r"\d{1,9}", written) is None:
        raise UnitError(
            f'{what} "{written}" is not a whole number.', f"Write a whole number, {minimum} or more."
        )
    count = int(written)
    if count < minimum:
        raise UnitError(f'{what} "{written}" is too small.', f"Write {minimum} or more.")
    if maximum is not None and count > maximum:
        raise UnitError(f'{what} "{written}" is more than {maximum}.', f"Write {maximum} or less.")
    return count


def parse_milli(text: object, *, what: str, minimum: int = 0) -> int:
    """Return a decimal number with at most three places in thousandths.

    Raises
    ------
    UnitError
        Not a number, negative, NaN, finer than 0.001, or below `minimum` thousandths.
    """
    written = _written(text)
    _refuse_nonsense(written, what, "Write a number such as 4 or 0.5.")
    if _NUMBER.fullmatch(written) is None:
        raise UnitError(f'{what} "{written}" is not a number.', "Write a number such as 4 or 0.5.")
    milli = Fraction(written) * 1000
    if milli.denominator != 1:
        raise UnitError(f'{what} "{written}" has more than three decimal places.', "Write at most three.")
    if milli < minimum:
        raise UnitError(f'{what} "{written}" is too small.', f"Write {format_milli(minimum)} or more.")
    return int(milli)


def parse_cpus(text: object, *, what: str) -> int:
    """Return a number of CPUs such as ``4`` or ``0.5`` in milli-CPU; zero is refused.

    Raises
    ------
    UnitError
        As `parse_milli`.
    """
    return parse_milli(text, what=what, minimum=1)


def parse_share(text: object, *, what: str = "share") -> tuple[int, int]:
    """Return a part of one card such as ``1/8`` as ``(1, 8)``, in lowest terms.

    Raises
    ------
    UnitError
        Not a fraction between 0 and 1.
    """
    written = _written(text)
    match = re.fullmatch(r"(\d{1,4})\s*/\s*(\d{1,4})", written)
    m, n = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 0 < m < n:
        raise UnitError(
            f'{what} "{written}" is not a part of one card.',
            "Write 1/8 for an eighth; gpus: 1 for a whole card.",
        )
    return m // gcd(m, n), n // gcd(m, n)


def format_size(mib: int) -> str:
    """Return MiB in the largest unit that keeps it whole up to GiB: ``4GiB``, ``1536MiB``."""
    return f"{mib // 1024}GiB" if mib and mib % 1024 == 0 else f"{mib}MiB"


def format_duration(seconds: int) -> str:
    """Return seconds as they are written in a policy: ``1h30m``."""
    parts = []
    for unit, size in _SECONDS_OF.items():
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def format_milli(milli: int) -> str:
    """Return thousandths as a decimal number: ``1500`` is ``1.5``."""
    return f"{milli // 1000}.{milli % 1000:03d}".rstrip("0").rstrip(".")


def slice_mib(capacity_mib: int, m: int, n: int) -> int:
    """Return the memory of a slice m/n of a card, in MiB (rounded down)."""
    return capacity_mib * m // n


def charge_milli(mib: int, card_mib: int, share: tuple[int, int] | None = None) -> int:
    """Return what a slice counts against quota, in milli-GPU.

    A policy slice m/n is charged 1000*m//n, so that n of them fit one card's quota; any other
    size is charged its part of the card, rounded up.
    """
    if share is not None:
        return 1000 * share[0] // share[1]
    return -(-1000 * mib // card_mib)


def _written(text: object) -> str:
    return str(text).strip() if not isinstance(text, bool) else str(text).lower()


def _refuse_nonsense(written: str, what: str, remedy: str) -> None:
    if _NOT_FINITE.fullmatch(written):
        raise UnitError(f'{what} "{written}" is not a number.', remedy)
    if re.match(r"-\s*[\d.]", written):
        raise UnitError(f'{what} "{written}" is negative.', remedy)
