"""The OpenAPI document, made from the table of routes.

Owns: the translation. Never: an address that is not in the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, TypeAdapter

from jupyter_gpupool._version import __version__
from jupyter_gpupool.service.errors import ErrorReply
from jupyter_gpupool.service.routes import Parameter, Route
from jupyter_gpupool.service.scopes import JOBS_TOKEN, what_it_takes
from jupyter_gpupool.service.wire import ENTRIES

REF = "#/components/schemas/{model}"
TASK = r"^[0-9]+\[[0-9]+\]$"
TYPES = {int: "integer", str: "string", bool: "boolean"}


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the document for `routes`."""
    routes = list(routes)
    schemas, components = _schemas(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "jupyter-gpupool",
            "version": __version__,
            "description": "A GPU pool with quotas and a priority queue. "
            "Times are ISO 8601 in UTC, sizes MiB, parts of GPUs and CPUs thousandths.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _schemas(routes: list[Route]) -> tuple[dict[Any, dict[str, Any]], dict[str, Any]]:
    """Return the schema of each type that goes in or out, and the definitions they refer to."""
    types: dict[str, Any] = {"error": ErrorReply}
    for route in routes:
        for kind in (route.reply, route.body):
            if kind not in (None, bytes, dict):
                types.setdefault(str(kind), kind)
    for name, entry in ENTRIES.items():
        types[f"entry {name}"] = entry
    adapters = [(name, "validation", TypeAdapter(kind)) for name, kind in types.items()]
    found, definitions = TypeAdapter.json_schemas(adapters, ref_template=REF)  # type: ignore[arg-type]
    return {name: schema for (name, _), schema in found.items()}, definitions["$defs"]


def _operation(route: Route, schemas: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [route.resource],
        "parameters": [
            *(_path_parameter(name, route) for name in re.findall(r"{(\w+)}", route.path)),
            *map(_query_parameter, route.query),
        ],
        "description": _needs(route),
        "security": [] if route.by_anybody else [{"token": []}],
        "responses": {
            str(route.status): _response(route, schemas),
            "default": _json("What went wrong.", schemas["error"]),
        },
    }
    if route.stream == "upload":
        operation["requestBody"] = {"required": True, "content": {"application/x-tar": {}}}
    elif isinstance(route.body, type) and issubclass(route.body, BaseModel):
        content = {"application/json": {"schema": schemas[str(route.body)]}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _needs(route: Route) -> str:
    """Say what it takes to be let in."""
    if route.by_anybody:
        return "Takes no token; with one, it says more."
    ways = dict.fromkeys([what_it_takes(route.action), *([JOBS_TOKEN] if route.by_job else [])])
    return f"Takes {', or '.join(ways)}."


def _response(route: Route, schemas: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    if route.reply is None:
        return {"description": route.summary}
    if route.stream == "events":
        return {"description": route.summary, "content": {"text/event-stream": {}}}
    if route.reply is bytes:
        return {"description": route.summary, "content": {"application/octet-stream": {}}}
    return _json(route.summary, {"type": "object"} if route.reply is dict else schemas[str(route.reply)])


def _json(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _path_parameter(name: str, route: Route) -> dict[str, Any]:
    kind: dict[str, Any] = {"type": "string"}
    if name == "id":
        kind = {"type": "integer", "minimum": 1}
        if "/jobs/{id}" in route.path:
            kind = {"anyOf": [kind, {"type": "string", "pattern": TASK}]}
    return {"name": name, "in": "path", "required": True, "schema": kind}


def _query_parameter(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": TYPES[parameter.type]}
    if parameter.default is not None:
        schema["default"] = parameter.default
    if parameter.least is not None:
        schema["minimum"] = parameter.least
    if parameter.most is not None:
        schema["maximum"] = parameter.most
    return {"name": parameter.name, "in": "query", "description": parameter.summary, "schema": schema}
