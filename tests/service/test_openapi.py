"""The OpenAPI document is valid, and says of the service what is so."""

from __future__ import annotations

import re
from typing import Any

import pytest
from openapi_spec_validator import validate
from pydantic import TypeAdapter

from jupyter_gpupool.service.application import pattern
from jupyter_gpupool.service.openapi import document
from jupyter_gpupool.service.routes import API, ROUTES, Route

DOCUMENT = document(ROUTES)


def test_the_document_is_valid() -> None:
    validate(DOCUMENT)


def test_it_has_every_route_and_no_other() -> None:
    described = {(path, method.upper()) for path, item in DOCUMENT["paths"].items() for method in item}
    assert described == {(route.path, route.method) for route in ROUTES}
    names = [operation["operationId"] for item in DOCUMENT["paths"].values() for operation in item.values()]
    assert len(names) == len(set(names))


def test_every_address_of_the_contract_is_there() -> None:
    known = {(route.method, route.path.removeprefix(API + "/")) for route in ROUTES}
    wanted = """
        GET whoami|GET quota|GET pool|GET queue|GET jobs|POST jobs|GET jobs/{id}|POST jobs/{id}/cancel
        POST jobs/{id}/hold|POST jobs/{id}/release|POST jobs/{id}/requeue|GET jobs/{id}/logs
        GET jobs/{id}/artifacts|GET jobs/{id}/artifacts/{name}
        PUT snapshots/{sha256}|HEAD snapshots/{sha256}|POST leases|GET leases
        GET leases/{id}|DELETE leases/{id}|POST spawns|GET spawns/choices|GET spawns/{id}|DELETE spawns/{id}
        GET events|GET policy|POST policy|GET report|GET openapi.json
        GET boosts|POST boosts|DELETE boosts/{id}|GET reservations|POST reservations|DELETE reservations/{id}
        GET requests|POST requests|POST requests/{id}/approve|POST requests/{id}/deny|DELETE requests/{id}
        POST nodes/{name}/drain|DELETE nodes/{name}/drain|GET actions
        GET /services/gpupool/health|GET /services/gpupool/metrics
    """
    for line in re.split(r"[|\n]", wanted):
        if line.strip():
            method, path = line.split()
            assert (method, path) in known


def test_references_lead_somewhere() -> None:
    found = set(re.findall(r"#/components/schemas/([\w.]+)", str(DOCUMENT)))
    assert found <= set(DOCUMENT["components"]["schemas"])


def test_the_running_service_gives_the_same_document_and_keeps_to_it(start: Any) -> None:
    call = start()
    assert call("GET", "openapi.json").body == DOCUMENT
    job = call.submit("true")
    call.wait(job["id"])
    lease = call("POST", "leases", {"gpu_memory": "1GiB"}).body
    call("GET", "policy")
    for route in ROUTES:
        if route.method != "GET" or route.stream or route.reply in (bytes, dict) or route.action == "spawn":
            continue
        path = route.path.format(id=lease["id"] if "leases" in route.path else job["id"], name="x")
        answer = call("GET", path)
        assert answer.status == route.status, route
        TypeAdapter(route.reply).validate_python(answer.body, strict=True)


@pytest.mark.parametrize("route", [pytest.param(route, id=route.name) for route in ROUTES])
def test_an_address_matches_its_own_route_first(route: Route) -> None:
    path = route.path.format(id=17, name="a.txt", sha256="0" * 64)
    first = next(other for other in ROUTES if re.fullmatch(pattern(other.path), path))
    assert first.path == route.path
