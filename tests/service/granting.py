"""A pool with groups in a tree, their managers, and whoever a test lets speak."""

from __future__ import annotations

import time
from typing import Any

from jupyter_gpupool.client.peercred import Peer
from jupyter_gpupool.service.identity import Identity
from jupyter_gpupool.service.scopes import ADMINISTRATOR, Scope

POLICY = """
timezone: Europe/Berlin
partitions:
  development: {gpus: ["node1:*"], for: [session, job]}
  training: {gpus: ["node2:*"], for: [job]}
groups:
  lab: {quota: {gpus: 3}, managers: [grace], members: [grace], budget: {gpu_hours: 100}}
  vision: {parent: lab, quota: {gpus: 2}, managers: [ada], members: [ada, bob], user: {gpus: 1, job_time: 8h},
           budget: {gpu_hours: 10}}
  speech: {quota: {gpus: 3}, members: [cy]}
visibility: groups
"""
USER: tuple[Scope, ...] = ("read", "submit")
SCOPES: dict[str, tuple[Scope, ...]] = {"ada": (*USER, "manage"), "grace": (*USER, "manage")}


class Pool:
    """A service that is asked by whoever a test names."""

    def __init__(self, start: Any):
        self.ahead = 0.0
        self._user = "root"
        parts = {"identify": self._identify, "clock": lambda: time.time() + self.ahead}
        self._call = start("2x4x8GiB", POLICY, parts=parts)

    def _identify(self, peer: Peer) -> Identity:
        if self._user == "root":
            return Identity("root", ADMINISTRATOR, peer.uid, peer.pid)
        return Identity(self._user, frozenset(SCOPES.get(self._user, USER)), peer.uid, peer.pid)

    def ask(self, user: str, method: str, path: str, body: Any = None) -> Any:
        """Return the whole answer."""
        self._user = user
        return self._call(method, path, body)

    def done(self, user: str, method: str, path: str, body: Any = None) -> Any:
        """Return the reply of a request that is accepted."""
        answer = self.ask(user, method, path, body)
        assert answer.status < 300, answer
        return answer.body

    def refused(self, user: str, method: str, path: str, body: Any = None) -> tuple[int, str]:
        """Return the status and the sentence of a refusal."""
        answer = self.ask(user, method, path, body)
        assert answer.status >= 400, answer
        return answer.status, answer.error["message"]

    def group(self, user: str, name: str) -> dict[str, Any]:
        """Return a group of a user's quota."""
        return next(one for one in self.done(user, "GET", "quota")["groups"] if one["name"] == name)

    def submit(self, user: str, shell: str = "sleep 60", **more: Any) -> dict[str, Any]:
        self._user = user
        return self._call.submit(shell, **more)

    def wait(self, job: int, *states: str) -> dict[str, Any]:
        self._user = "root"
        return self._call.wait(job, *states)

    def clear(self) -> None:
        """End whatever a test has left."""
        for boost in self.done("root", "GET", "boosts")["boosts"]:
            self.done("root", "DELETE", f"boosts/{boost['id']}")
        for kept in self.done("root", "GET", "reservations")["reservations"]:
            self.done("root", "DELETE", f"reservations/{kept['id']}")
        for node in self.done("root", "GET", "pool")["nodes"]:
            if not node["available"]:
                self.done("root", "DELETE", f"nodes/{node['name']}/drain")
        for request in self.done("root", "GET", "requests")["requests"]:
            self.done("root", "POST", f"requests/{request['id']}/deny", {"answer": "The test is over."})
        for job in self.done("root", "GET", "queue")["running"]:
            self.done("root", "POST", f"jobs/{job['id']}/cancel")
            self.wait(job["id"])


def cards(reply: dict[str, Any]) -> list[str]:
    """Return the cards of a reservation by node and number."""
    return [f"{card['node']}:{card['index']}" for card in reply["cards"]]
