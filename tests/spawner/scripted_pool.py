"""A pool that does what a test says, behind a real Unix socket: every reply of the real service's shapes."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from aiohttp import web

from jupyter_gpupool import __version__

TOKEN = "token-of-the-spawner"
API = "/services/gpupool/api/v1"
ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "GPU-aaaa",
    "GPUPOOL_LEASE_ID": "7",
    "PYTORCH_ALLOC_CONF": "per_process_memory_fraction:0.1250",
}


def error(code: str, message: str, **numbers: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, **numbers}}


class ScriptedPool:
    """`free`: whether there is room at once; `refusals`: (status, body) to answer the next requests with."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "hub.sock"
        self.url = f"unix:{self.path}?uid={os.geteuid()}"
        self.requests: list[dict[str, Any]] = []
        self.withdrawn: list[int] = []
        self.free = True
        self.refusals: list[tuple[int, dict[str, Any]]] = []
        self.choices: dict[str, Any] = choices()
        self.version = __version__
        self.user: str | None = None
        self.folder = folder / "jobs"
        self.cpus_milli = self.memory_mib = 0
        self.position = 3
        self.tokens: set[str | None] = set()
        self._leases: dict[int, dict[str, Any]] = {}
        self.ends_at_once = False
        self._next = 100
        self._changed = asyncio.Event()
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application(middlewares=[self._answer])
        app.router.add_post(f"{API}/spawns", self._request)
        app.router.add_get(f"{API}/spawns/choices", self._choices)
        app.router.add_get(f"{API}/spawns/{{id}}", self._look)
        app.router.add_delete(f"{API}/spawns/{{id}}", self._give_back)
        self._runner = web.AppRunner(app, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.UnixSite(self._runner, str(self.path)).start()

    async def stop(self) -> None:
        """Be down; leases and queue stay."""
        if self._runner:
            await self._runner.cleanup()
            self._runner = None

    @property
    def live(self) -> list[int]:
        """The leases that somebody holds or waits for."""
        return [id for id, lease in self._leases.items() if lease["state"] in ("requested", "held")]

    def grant(self) -> None:
        """Room for all that wait."""
        self.free = True
        self._change(state="held", waiting=None)

    def end(self, reason: str) -> None:
        self._change(state="ended", reason=reason, waiting=None)

    def move_up(self, position: int) -> None:
        self.position = position
        self._change(waiting=waiting(position))

    def plan_silently(self, position: int) -> None:
        """Give a place to who waits, as a plan does that wakes nobody."""
        for lease in self._leases.values():
            lease["waiting"] = waiting(position)

    def clear(self) -> None:
        self.__init__(self.path.parent)  # type: ignore[misc]

    def _change(self, **changes: Any) -> None:
        for lease in self._leases.values():
            if lease["state"] == "requested":
                lease.update(changes)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    @web.middleware
    async def _answer(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.tokens.add(request.headers.get("Authorization"))
        if request.headers.get("Authorization") != f"token {TOKEN}":
            reply = web.json_response(error("forbidden", "Not you."), status=403)
        else:
            reply = await handler(request)
        reply.headers["X-Gpupool-Version"] = self.version
        return reply

    async def _request(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        self.requests.append(body)
        if self.refusals:
            status, refusal = self.refusals.pop(0)
            return web.json_response(refusal, status=status)
        cpu = body["slice"] == "0"
        if not (self.free or cpu or body["wait"]):
            return web.json_response(error("no_room", "No 1/8 of a GPU is free."), status=409)
        self._next += 1
        held = self.free or cpu
        self._leases[self._next] = {
            "id": self._next,
            "state": "held" if held else "requested",
            "waiting": None if held else waiting(self.position),
            "environment": {} if cpu else dict(ENVIRONMENT),
            "reason": None,
        }
        return web.json_response(self._reply(self._next), status=201 if held else 202)

    async def _look(self, request: web.Request) -> web.StreamResponse:
        lease = self._leases.get(int(request.match_info["id"]))
        if lease is None:
            return web.json_response(error("not_found", "There is no such lease."), status=404)
        before = dict(lease)
        try:
            if self.ends_at_once:
                lease.update(state="ended", reason="No server was started on it.")
            async with asyncio.timeout(float(request.query["wait"])):
                while lease == before and lease["state"] == "requested":
                    await self._changed.wait()
        except TimeoutError:
            pass
        return web.json_response(self._reply(lease["id"]))

    async def _give_back(self, request: web.Request) -> web.StreamResponse:
        lease = self._leases.get(int(request.match_info["id"]))
        if lease is None:
            return web.json_response(error("not_found", "There is no such lease."), status=404)
        self.withdrawn.append(lease["id"])
        lease["state"] = "ended"
        return web.json_response(self._reply(lease["id"]))

    async def _choices(self, request: web.Request) -> web.StreamResponse:
        self.asked = dict(request.query)
        return web.json_response(self.choices)

    def _reply(self, id: int) -> dict[str, Any]:
        work = {
            "key": f"{id}/1",
            "job": id,
            "attempt": 1,
            "folder": str(self.folder / str(id)),
            "limit_s": 600,
            "grace_s": 1,
            "cpus_milli": self.cpus_milli,
            "memory_mib": self.memory_mib,
            "user": self.user,
            "of_a_newer_service": True,
        }
        lease = self._leases[id]
        return {"lease": lease, "work": work if lease["state"] == "held" else None}


def waiting(position: int) -> dict[str, Any]:
    return {
        "reason": "Resources",
        "message": "1/8 of a GPU is free when <bob>'s server ends",
        "clears": "",
        "position": position,
        "expected_start": None,
        "kind": None,
    }


def offer(
    slice: str, label: str, gpu_milli: int, state: str = "available", message: str | None = None, **more: Any
) -> dict[str, Any]:
    return {
        "slice": slice,
        "partition": "development",
        "label": label,
        "gpu_milli": gpu_milli,
        "state": state,
        "message": message,
        "expected_start": None,
        **more,
    }


CPU = offer("0", "CPU only, 4 CPUs, 16GiB", 0)


def group(name: str | None = "vision", *offers: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "used_milli": 3250,
        "limit_milli": 6000,
        "user_used_milli": 500,
        "user_limit_milli": 2000,
        "user_sessions": 1,
        "user_sessions_limit": 2,
        "slices": [*offers] or [offer("1/8", "1/8 of a GPU, 4 CPUs, 16GiB", 125), CPU],
        **more,
    }


def choices(*groups: dict[str, Any], message: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "user": "ada",
        "default_group": None,
        "groups": [*groups] or [group()],
        "free": [{"partition": "development", "gpus": 16, "idle_gpus": 3, "memory_mib": 100_000}],
        "message": message,
        "simulated": False,
        **more,
    }
