"""Fifty people log in at once at the demo's Hub, beside JupyterHub's own local spawner at the same Hub."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.benchmarks.harness import Row
from tests.hub.crowd import Story, cpu_seconds, everybody, rush
from tests.hub.site import Site

PATIENCE_S = 600.0
GOAL_S = 60
USUAL_PATIENCE_S = 30
"""For so long JupyterHub waits for a server, unless a site says otherwise."""
BEFORE = "before yours"
SIMPLE = """
import os
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = os.environ["GPUPOOL_DEMO_DIR"] + "/users/{username}"
c.Spawner.http_timeout = 600
"""


def run() -> list[Row]:
    ours, cores = fifty("", {"slice": "1/8"})
    theirs, their_cores = fifty(SIMPLE, {})
    count = len(ours)
    last, their_last = last_in(ours), last_in(theirs)
    in_time = sum(story.ready is not None and story.ready <= USUAL_PATIENCE_S for story in theirs)
    return [
        Row("fifty logins at once: in or told why within 60 s", within(ours, BEFORE), "people", f"{count}"),
        Row("fifty logins at once: the last is told or in after", last_told(ours), "s", f"<= {GOAL_S}"),
        Row("fifty logins at once: in", in_of(ours), "people", f"{count}", f"simple {in_of(theirs)}"),
        Row(
            "fifty logins at once: the last is in after",
            last,
            "s",
            "",
            f"simple {their_last:.1f} s ({in_time} before the usual {USUAL_PATIENCE_S} s timeout)",
            last / their_last,
        ),
        Row(
            "fifty logins at once: core seconds of Hub, service, launcher, servers",
            cores,
            "s",
            "",
            f"simple {their_cores:.0f} s",
            cores / their_cores,
        ),
    ]


def fifty(configuration: str, options: dict[str, str]) -> tuple[list[Story], float]:
    """Return how fifty starts at once went at a new Hub, and the core seconds that they took."""
    with tempfile.TemporaryDirectory(prefix="gpupool-bench-") as folder:
        site = Site(Path(folder), extra=configuration)
        try:
            site.start()
            before = cpu_seconds(site).total()
            stories = rush(site, everybody(), lambda name: site.begin(name, options), all_settled, PATIENCE_S)
            return stories, cpu_seconds(site).total() - before
        finally:
            site.close()


def all_settled(stories: list[Story]) -> bool:
    """Whether everybody is in or refused."""
    return all(story.ready or story.refused for story in stories)


def in_of(stories: list[Story]) -> int:
    return sum(story.ready is not None for story in stories)


def last_in(stories: list[Story]) -> float:
    return max((story.ready for story in stories if story.ready is not None), default=PATIENCE_S)


def last_told(stories: list[Story]) -> float:
    return max(PATIENCE_S if (at := story.knows(BEFORE)) is None else at for story in stories)


def within(stories: list[Story], reason: str) -> int:
    return sum((at := story.knows(reason)) is not None and at <= GOAL_S for story in stories)
