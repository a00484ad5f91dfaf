"""How the tasks of an array are written: ``0-9%4``, ``1,5,20-99:10``.

Owns: the text and its numbers, both ways. Never: what a task is, how many may wait.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from jupyter_gpupool.policy.units import UnitError

MOST_TASKS = 10_000
EXAMPLES = "Write numbers and ranges such as 0-9, 1,5,7 or 0-99:10, and %N for at most N at once."

_ITEM = re.compile(r"([0-9]{1,12})(?:-([0-9]{1,12})(?::([0-9]{1,12}))?)?")
_MEANT_AS_RANGE = re.compile(r"([0-9]{1,9})\s*(?:\.\.+|:|–|—|to)\s*([0-9]{1,9})")
_AT_ONCE = re.compile(r"0*[1-9][0-9]{0,8}")
_LARGEST = 999_999_999


def parse_array(text: str) -> tuple[tuple[int, ...], int | None]:
    """Return the numbers of an array's tasks, ascending, and how many may run at once.

    >>> parse_array("0-6:3,1%2")
    ((0, 1, 3, 6), 2)

    Raises
    ------
    UnitError
        It cannot be read, or there are too many tasks; the remedy says what may have been meant.
    """
    written = text.strip()
    ranges, percent, most = (part.strip() for part in written.partition("%"))
    if percent and not _AT_ONCE.fullmatch(most):
        raise UnitError(
            f'--array "{written}": "%{most}" does not say how many may run at once.',
            f"Write a whole number of 1 or more, such as {ranges or '0-9'}%4.",
        )
    found = [_range(item.strip(), written) for item in ranges.split(",")]
    if (count := sum(map(len, found))) > MOST_TASKS:
        raise UnitError(
            f'--array "{written}" has {count:,} tasks; at most {MOST_TASKS:,} are allowed.',
            "Submit it in parts, or let each task do more.",
        )
    return tuple(sorted({number for numbers in found for number in numbers})), int(most) if most else None


def array_text(tasks: Iterable[int]) -> str:
    """Write ascending numbers as short as ranges and steps of three or more allow.

    >>> array_text([0, 1, 2, 3, 10, 20, 30, 35])
    '0-3,10-30:10,35'
    """
    numbers = list(tasks)
    parts: list[str] = []
    first = 0
    while first < len(numbers):
        end = _end_of_run(numbers, first)
        start, last = numbers[first], numbers[end - 1]
        step = (last - start) // max(1, end - 1 - first)
        steps = f":{step}" if step > 1 else ""
        parts.append(f"{start}-{last}{steps}" if end - first > 1 else str(start))
        first = end
    return ",".join(parts)


def _end_of_run(numbers: list[int], first: int) -> int:
    """Return where the numbers from `first` on end that are one apart, or at least three in even steps."""
    end = first + 1
    while end < len(numbers) and numbers[end] - numbers[end - 1] == numbers[first + 1] - numbers[first]:
        end += 1
    one_apart = numbers[end - 1] - numbers[first] == end - 1 - first
    return end if end - first > 2 or one_apart else first + 1


def _range(item: str, written: str) -> range:
    match = _ITEM.fullmatch(item)
    if match is None:
        raise _unreadable(item, written)
    first = int(match[1])
    last = first if match[2] is None else int(match[2])
    step = 1 if match[3] is None else int(match[3])
    if max(first, last) > _LARGEST:
        raise UnitError(f'--array "{written}": the largest number of a task is {_LARGEST:,}.', EXAMPLES)
    if last < first:
        steps = f":{step}" if step > 1 else ""
        raise UnitError(
            f'--array "{written}": {item} counts down.',
            f"If you mean it upwards, write {last}-{first}{steps}.",
        )
    if step == 0:
        raise UnitError(
            f'--array "{written}": steps of 0 lead nowhere.', f"Write {first}-{last}, or a step of 1 or more."
        )
    return range(first, last + 1, step)


def _unreadable(item: str, written: str) -> UnitError:
    if not item:
        return UnitError(f'--array "{written}" has a part without a number.', EXAMPLES)
    if item.startswith("-") and item[1:].isdecimal():
        return UnitError(f'--array "{written}": the numbers of tasks begin at 0.', EXAMPLES)
    if meant := _MEANT_AS_RANGE.fullmatch(item):
        first, last = sorted(meant.groups(), key=int)
        return UnitError(
            f'--array "{written}": {item} is not a range.', f"If you mean one, write {first}-{last}."
        )
    return UnitError(f'--array "{written}": "{item}" is neither a number nor a range.', EXAMPLES)
