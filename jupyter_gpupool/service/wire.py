"""What clients send: the request bodies, checked strictly.

Owns: the pydantic models of requests, and the one sentence for a body that does not fit. A key that
nobody knows is refused with the nearest name, so a typing error never passes as a default. Never:
the meaning of a value; sizes and times stay as they were typed until `submission` reads them.
"""

from __future__ import annotations

import json
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from jupyter_gpupool.service.errors import ApiError, invalid, nearest

Typed = str | int | float | None
"""An amount as somebody typed it: ``"8GiB"``, ``2``, ``"90m"``."""

JobKind = Literal["script", "cell", "notebook", "function", "command"]
Occasion = Literal["end", "fail", "start", "stop", "none"]
"""When the owner of a job wants to hear of it; ``none`` alone = never, whatever the policy says."""

MOST_BEFORE = 1000
"""So many jobs can one job come after."""

MOST_PARAMETERS = 100_000
"""Bytes; Linux passes at most 131,072 in one variable of the environment."""

MOST_VALUES = 4096
"""Bytes of what a job may report beside its progress."""


class Body(BaseModel):
    """A body in which every key is known and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Resources(Body):
    """What the work needs: whole cards, or memory of one card, or neither (CPU only)."""

    gpus: Typed = None
    gpu_memory: Typed = None
    gpu_type: list[str] = Field(default_factory=list)
    gpu_compute: Typed = None
    cpus: Typed = None
    mem: Typed = None


class Interpreter(Body):
    """The Python that runs the job, and what was in it at submit."""

    python: str | None = Field(default=None, pattern="^/")
    kernel: str | None = None
    version: str | None = None
    packages: str | None = None


class Provenance(Body):
    """Where the code came from."""

    git: dict[str, Any] | None = None


class ScriptEntry(Body):
    """A script of the snapshot and its arguments."""

    script: str = Field(min_length=1)
    args: list[str] = Field(default_factory=list)


class CellEntry(Body):
    """A cell; `fetch` names the variables to bring back; `ipython`: it has magics or shell commands."""

    fetch: list[str] = Field(default_factory=list)
    sent: bool = False
    ipython: bool = False


class NotebookEntry(Body):
    """A notebook, its parameters and its kernel."""

    notebook: str = Field(min_length=1)
    parameters: dict[str, Any] = Field(default_factory=dict)
    kernel: str = "python3"

    @field_validator("parameters")
    @classmethod
    def _fit_into_the_environment(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        size = len(json.dumps(parameters))
        if size > MOST_PARAMETERS:
            raise ValueError(f"they have {size} bytes as JSON, and at most {MOST_PARAMETERS} can be passed")
        return parameters


class FunctionEntry(Body):
    """A function by its name; its pickle is in the snapshot."""

    name: str


class CommandEntry(Body):
    """A program and its arguments."""

    argv: list[str] = Field(min_length=1)


ENTRIES: dict[str, type[Body]] = {
    "script": ScriptEntry,
    "cell": CellEntry,
    "notebook": NotebookEntry,
    "function": FunctionEntry,
    "command": CommandEntry,
}


class JobRequest(Body):
    """A job to be queued, or with `array` (``0-9%4``) one for each number, of which so many run at once.

    It starts when the jobs and arrays of `after` have completed, and those of `after_any` have ended; they
    are numbers, or ``12[3]`` for task 3 of array 12. If its program fails, it is tried again `retries` times.
    """

    kind: JobKind
    entry: dict[str, Any] = Field(
        description="The entry of this kind: script, cell, notebook, function or command."
    )
    name: str | None = Field(default=None, max_length=200)
    resources: Resources = Resources()
    time: Typed = None
    grace: Typed = None
    priority: str | None = None
    window: str | None = None
    partition: str | None = None
    group: str | None = None
    resumable: bool = False
    array: str | None = Field(default=None, max_length=100_000)
    after: list[int | str] = Field(default_factory=list, max_length=MOST_BEFORE)
    after_any: list[int | str] = Field(default_factory=list, max_length=MOST_BEFORE)
    retries: Typed = None
    notify: list[Occasion] = Field(default_factory=list)
    workdir: str | None = Field(default=None, pattern="^/")
    workdir_mode: Literal["here", "snapshot"] = "here"
    snapshot: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    environment: dict[str, str] = Field(default_factory=dict)
    held_back: list[str] = Field(default_factory=list)
    interpreter: Interpreter = Interpreter()
    provenance: Provenance = Provenance()


class ExtendRequest(Body):
    """How much longer a running job may run than it may now."""

    time: Typed


class LeaseRequest(Resources):
    """A slice, or GPUs, for interactive work; `wait` = queue for it when there is no room now."""

    time: Typed = None
    partition: str | None = None
    group: str | None = None
    name: str | None = Field(default=None, max_length=200)
    pid: int | None = Field(default=None, gt=1)
    wait: bool = True


class SpawnRequest(Body):
    """A notebook server that a Hub is about to start.

    `groups` are the user's groups on the Hub now; `slice` is the name of one that is offered (``1/8``, ``1``,
    ``0`` = CPU only), None = the smallest; `wait` = queue when there is no room now; `version` = the Hub's.
    """

    user: str = Field(min_length=1, max_length=255, pattern="^[^/]*$")
    server: str = Field(default="", max_length=255)
    groups: list[str] = Field(default_factory=list)
    group: str | None = Field(default=None, max_length=255)
    slice: str | None = Field(default=None, max_length=100)
    partition: str | None = Field(default=None, max_length=255)
    wait: bool = True
    version: str = Field(max_length=100)


class ProgressRequest(Body):
    """How far a job is: the fraction done, and numbers or texts to show beside it."""

    fraction: float | None = Field(default=None, ge=0, le=1)
    values: dict[str, Any] = Field(default_factory=dict)

    @field_validator("values")
    @classmethod
    def _are_small_and_plain(cls, values: dict[str, Any]) -> dict[str, Any]:
        for name, value in values.items():
            if not isinstance(value, str | int | float | None):
                raise ValueError(f"{name} can be a number or a text")
        if (size := len(json.dumps(values))) > MOST_VALUES:
            raise ValueError(f"they have {size} bytes as JSON, and at most {MOST_VALUES} are shown")
        return values


class KernelActivity(Body):
    """One kernel of a Jupyter server: its process, and whether it runs a cell."""

    pid: int | None = Field(default=None, ge=1, le=2**31)
    busy: bool


class ActivityRequest(Body):
    """What the kernels of a Jupyter server do; `server` is its name on the Hub, null where there is none."""

    server: str | None = Field(default=None, max_length=255)
    kernels: list[KernelActivity] = Field(default_factory=list, max_length=1000)


class PolicyRequest(Body):
    """A policy file to check, or to put in force; `source` is its name in messages."""

    text: str
    apply: bool = False
    source: str | None = Field(default=None, max_length=4096)


class ShutdownRequest(Body):
    """How to stop the service: leaving what runs to go on, or ending it first."""

    keep_jobs: bool = True


Model = TypeVar("Model", bound=BaseModel)


def read(model: type[Model], body: bytes) -> Model:
    """Read a request body.

    Raises
    ------
    ApiError
        It is no JSON object (400), or a key or value does not fit (422); one sentence says which.
    """
    try:
        data = json.loads(body or b"{}")
    except ValueError as error:
        raise ApiError(400, "bad_json", f"The request's body is not JSON: {error}.") from None
    if not isinstance(data, dict):
        raise ApiError(400, "bad_json", "The request's body must be a JSON object.")
    return check(model, data)


def check(model: type[Model], data: dict[str, Any], within: str = "") -> Model:
    """Check a decoded object against its model; `within` names the object in the sentence.

    Raises
    ------
    ApiError
        As `read`, status 422.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _sentence(model, error, within) from None


def _sentence(model: type[BaseModel], error: ValidationError, within: str) -> ApiError:
    """Say the first problem in words."""
    problem = error.errors(include_url=False, include_context=True)[0]
    where = [str(part) for part in problem["loc"]]
    name = ".".join(([within] if within else []) + where)
    match problem["type"]:
        case "extra_forbidden":
            known = _fields_at(model, where[:-1])
            guess = nearest(where[-1], known)
            hint = f"Did you mean {guess}?" if guess else f"Known are {', '.join(known)}."
            return invalid(f"Unknown option {name}.", hint, code="unknown_option")
        case "missing":
            return invalid(f"{name} is missing.")
        case "literal_error":
            return invalid(f"{name} is {problem['input']!r}; it can be {problem['ctx']['expected']}.")
        case "string_type" | "int_type" | "float_type" if where[-1] in ("str", "int", "float"):
            return invalid(
                f"{name.rpartition('.')[0]} is {problem['input']!r}; it can be a number or a text."
            )
        case "value_error":
            return invalid(f"{name} does not fit: {problem['ctx']['error']}.")
        case _:
            text = problem["msg"][:1].lower() + problem["msg"][1:]
            return invalid(f"{name} does not fit: {text}.")


def _fields_at(model: type[BaseModel], path: list[str]) -> list[str]:
    for part in path:
        found = model.model_fields.get(part)
        inner = found.annotation if found else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        model = inner
    return list(model.model_fields)
