"""The options of a request: one table for the command line, the magics and the Python functions.

Owns: names, texts, and how a command line becomes a mapping of names to values. Never: units and limits,
which the service judges.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from jupyter_gpupool.client.arguments import nearest
from jupyter_gpupool.client.errors import Refused

Kind = Literal["text", "names", "flag", "variables", "parameters"]
Options = Mapping[str, Any]


@dataclass(frozen=True)
class Option:
    """One option: `dest` is its name in Python and in an `Options` mapping.

    ``names`` are separated by commas (in Python a list, also of jobs), ``variables`` are NAME or NAME=VALUE,
    ``parameters`` are name=value.
    """

    flag: str
    help: str
    metavar: str | None = None
    kind: Kind = "text"

    @property
    def dest(self) -> str:
        """The option's name in Python."""
        return "parameters" if self.flag == "-p" else self.flag.lstrip("-").replace("-", "_")


RESOURCES = (
    Option("--gpus", "whole GPUs; 0 for CPUs only (default 1 for a job)", "N"),
    Option("--gpu-memory", "part of one GPU, such as 8GiB", "SIZE"),
    Option("--gpu-type", "acceptable models, separated by commas", "NAME[,NAME]", "names"),
    Option("--gpu-compute", "share of one GPU's compute, where the sharing mode can hold it", "PCT"),
    Option("--cpus", "CPU cores (default: in proportion to the GPU)", "N"),
    Option("--mem", "host memory, such as 16GiB (default: in proportion to the GPU)", "SIZE"),
    Option("--time", "time limit, such as 8h or 1h30m", "TIME"),
    Option("--partition", "run in this partition", "NAME"),
    Option("--group", "charge this group (default: your own)", "NAME"),
)
SCHEDULING = (
    Option("--priority", "priority class", "NAME"),
    Option("--window", "start only in this calendar's windows, such as night", "NAME"),
    Option("--name", "a name for lists", "TEXT"),
    Option("--resumable", "the job can be stopped and goes on from its checkpoint", kind="flag"),
    Option("--grace", "time between SIGTERM and the end, such as 5m", "TIME"),
    Option("--array", "a task for each number: 0-9, 1,5 or 0-99:10; with %%N, N at once", "RANGES[%N]"),
    Option("--after", "start when these have completed; if one fails, do not", "ID[,ID]", "names"),
    Option("--after-any", "start when these have ended, however they did", "ID[,ID]", "names"),
    Option("--retries", "when the program fails, try again up to N times", "N"),
    Option(
        "--notify",
        "tell me when it ends, fails, starts, is stopped; none",
        "end,fail,start,stop",
        "names",
    ),
)
CONTENT = (
    Option("--env", "send this variable, also when it looks like a credential", "NAME[=VALUE]", "variables"),
    Option("--send", "carry these variables of the notebook into the job", "x,y", "names"),
    Option("--fetch", "bring these variables back", "z", "names"),
    Option("-p", "a parameter of the notebook", "name=value", "parameters"),
    Option("--kernel", "run in the Python of this kernel", "NAME"),
    Option("--python", "run in this Python", "PATH"),
    Option("--workdir", "work in the present folder (here) or in the copy (snapshot)", "here|snapshot"),
    Option("--no-snapshot", "run the file itself, as it is when the job starts", kind="flag"),
)
CONDUCT = (
    Option("--dry-run", "say where and when it would start, and submit nothing", kind="flag"),
    Option("--wait", "wait for the end", kind="flag"),
)
OPTIONS: tuple[Option, ...] = RESOURCES + SCHEDULING + CONTENT + CONDUCT


def add_options(parser: argparse.ArgumentParser, options: Iterable[Option] = OPTIONS) -> None:
    """Add `options` to `parser`; those not given are absent from the namespace."""
    for option in options:
        settings: dict[str, Any] = {
            "dest": option.dest,
            "help": option.help,
            "default": argparse.SUPPRESS,
        }
        if option.kind == "flag":
            settings["action"] = "store_true"
        else:
            settings["metavar"] = option.metavar
        if option.kind == "names":
            settings.update(action="extend", type=_names)
        elif option.kind in ("variables", "parameters"):
            settings["action"] = "append"
        if option.dest == "workdir":
            settings.update(choices=("here", "snapshot"))
        parser.add_argument(option.flag, **settings)


def given(namespace: argparse.Namespace, options: Iterable[Option] = OPTIONS) -> dict[str, Any]:
    """Return the options that a parsed command line gives, by their Python names."""
    values = vars(namespace)
    found = {option.dest: values[option.dest] for option in options if option.dest in values}
    if "parameters" in found:
        found["parameters"] = dict(parameter(text) for text in found["parameters"])
    return found


def keywords(values: Mapping[str, Any], options: Iterable[Option] = OPTIONS) -> dict[str, Any]:
    """Return keyword arguments as options, in the form that a command line would give.

    Raises
    ------
    Refused
        For an unknown name (the nearest known one is given) or a value of the wrong kind.
    """
    known = {option.dest: option for option in options}
    found = {}
    for name, value in values.items():
        if name not in known:
            raise Refused("invalid_option", f"There is no option {name}.{nearest(name, known)}")
        if value is not None:
            found[name] = _value(known[name], value)
    return found


def parameter(text: str) -> tuple[str, Any]:
    """Read ``name=value``; the value is JSON where it can be, else text.

    Raises
    ------
    Refused
        Without a name.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise Refused("invalid_option", f"-p {text}: write name=value, with a name that Python accepts.")
    if value in ("True", "False", "None"):
        return name, {"True": True, "False": False, "None": None}[value]
    try:
        return name, json.loads(value, parse_constant=str)
    except ValueError:
        return name, value


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _value(option: Option, value: Any) -> Any:
    if option.kind == "flag":
        return bool(value)
    if option.kind == "parameters":
        return dict(value)
    if option.kind == "names":
        if isinstance(value, str):
            return _names(value)
        several = isinstance(value, Iterable) and not hasattr(value, "id")
        return [str(getattr(one, "id", one)) for one in (value if several else [value])]
    if option.kind == "variables":
        if isinstance(value, Mapping):
            return [f"{name}={text}" for name, text in value.items()]
        return [value] if isinstance(value, str) else [str(text) for text in value]
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise Refused("invalid_option", f"{option.dest} must be text or a number, not {value!r}.")
    if option.dest == "workdir" and value not in ("here", "snapshot"):
        raise Refused("invalid_option", f"workdir must be here or snapshot, not {value!r}.")
    return str(value)
