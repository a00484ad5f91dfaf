"""Everybody at once: fifty people start their servers in the same moment, and follow how it goes.

Owns: the starts, what each person is told and when, and what the starts cost. Never: the site.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_gpupool.commands.demo import files
from jupyter_gpupool.policy.load import load_policy
from tests.hub.site import ROOT_TOKEN, Site

Begin = Callable[[str], "tuple[int, Any]"]
"""Asks for one person's server; returns the Hub's status, and its words where that is an error."""

_PARTS = {
    "singleuser": "servers",
    "configurable-http-proxy": "proxy",
    "engines.local.daemon": "launcher",
    "jupyter_gpupool.app serve": "service",
    "-m jupyterhub": "hub",
}


@dataclass
class Story:
    """What one person was told, with the seconds since everybody began."""

    name: str
    told: list[tuple[float, str]] = field(default_factory=list)
    ready: float | None = None
    refused: float | None = None

    @property
    def last(self) -> str:
        """The latest words."""
        return self.told[-1][1] if self.told else ""

    def hear(self, seconds: float, event: dict[str, Any]) -> None:
        """Note one event of the Hub's progress."""
        if event.get("ready"):
            self.ready = seconds
        elif event.get("failed"):
            self.refused = seconds
        self.told.append((seconds, event["message"]))

    def knows(self, reason: str) -> float | None:
        """Return when this person was in, refused, or told first why not in words with `reason`."""
        told = next((seconds for seconds, words in self.told if reason in words), None)
        return min((at for at in (self.ready, self.refused, told) if at is not None), default=None)


def everybody() -> list[str]:
    """Return the names of the demo's people."""
    site = load_policy((files.site_files() / files.POLICY).read_text())
    return [name for group in site.groups.values() for name in group.members]


def rush(
    site: Site,
    names: Sequence[str],
    begin: Begin,
    enough: Callable[[list[Story]], bool],
    patience: float,
) -> list[Story]:
    """Start everybody's server at once; return what each was told until it is enough, or patience ends."""
    stories = [Story(name) for name in names]
    began = time.monotonic()

    def live(story: Story) -> None:
        status, reply = begin(story.name)
        if status >= 400:
            story.hear(time.monotonic() - began, {"failed": True, "message": str(reply)})
            return
        for event in follow(site, story.name):
            story.hear(time.monotonic() - began, event)

    crowd = ThreadPoolExecutor(len(stories))
    lives = [crowd.submit(live, story) for story in stories]
    while not enough(stories) and time.monotonic() - began < patience:
        _raise_what_failed(lives)
        time.sleep(1)
    crowd.shutdown(wait=False)
    return stories


def follow(site: Site, name: str) -> Iterator[dict[str, Any]]:
    """Yield what the Hub tells of a start, as the page of a browser hears it; to its end."""
    asked = urllib.request.Request(
        f"{site.url}/hub/api/users/{name}/server/progress", headers={"Authorization": f"token {ROOT_TOKEN}"}
    )
    with urllib.request.urlopen(asked, timeout=600) as stream:
        for line in stream:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])


def end_all(site: Site, names: Sequence[str]) -> None:
    """Stop everybody's server."""
    with ThreadPoolExecutor(len(names)) as crowd:
        list(crowd.map(site.end, names))


def cpu_seconds(site: Site) -> Counter[str]:
    """Return the core seconds that each part of the site has used, those of ended children included."""
    ticks: Counter[str] = Counter()
    for pid, command in site.processes().items():
        part = next((part for words, part in _PARTS.items() if words in command), "other")
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks[part] += sum(map(int, fields[11:15]))
    return Counter({part: count / os.sysconf("SC_CLK_TCK") for part, count in ticks.items()})


def figures(stories: Sequence[Story], reason: str) -> str:
    """Return how it went in one line."""
    ready = sorted(story.ready for story in stories if story.ready is not None)
    known = [at for story in stories if (at := story.knows(reason)) is not None]
    return (
        f"{len(ready)} of {len(stories)} in (half after {ready[len(ready) // 2]:.1f} s, the last after "
        f"{ready[-1]:.1f} s); {len(known)} in or told why, the last after {max(known):.1f} s; "
        f"load {os.getloadavg()[0]:.1f}"
    )


def _raise_what_failed(lives: Sequence[Future[None]]) -> None:
    for life in lives:
        if life.done():
            life.result()
