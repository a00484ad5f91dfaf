"""Fifty people log in at once on 32 cards: no card is over-booked, and everybody is in or told why.

No time is asserted: the figures are printed (``-s``), and `make bench` measures them.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.hub.crowd import Story, end_all, everybody, figures, rush
from tests.hub.site import Person, Site, until

pytestmark = [pytest.mark.requires_server("node"), pytest.mark.timeout(400)]

PATIENCE_S = 300
BEFORE, NUMBER = "before yours", "You are number"
NAMES = everybody()


@pytest.fixture(scope="module")
def site(make_site: Callable[..., Site]) -> Site:
    return make_site().start()


@pytest.fixture(autouse=True)
def _nobody_is_in(site: Site) -> None:
    if site.leases():
        end_all(site, NAMES)
        until(lambda: site.leases() == [] == servers_known(site), "nobody is in", site.tail, PATIENCE_S)


def servers_known(site: Site) -> list[str]:
    """Return whose server runs, starts or ends by what the Hub says."""
    return [user["name"] for user in site.api("GET", "users")[1] if user["servers"]]


def servers(site: Site) -> list[dict[str, str]]:
    """Return the environment of every server that runs, as the kernel knows it."""
    found = []
    for pid, command in site.processes().items():
        if "singleuser" in command:
            content = Path(f"/proc/{pid}/environ").read_text()
            found.append(dict(item.split("=", 1) for item in content.split("\0") if "=" in item))
    return found


def leased(site: Site) -> Counter[str]:
    """Return the MiB leased on each card, counted anew; no card may have more than it has memory."""
    found = Counter[str]()
    for lease in site.leases():
        found[lease["uuid"]] += lease["mib"]
        assert found[lease["uuid"]] <= lease["memory_mib"], f"{lease['uuid']} is over-booked"
    return found


def used(site: Site) -> Counter[str]:
    """Return the MiB on each card that the servers which run have been told of."""
    found = Counter[str]()
    for environment in servers(site):
        found[environment["GPUPOOL_GPUS"]] += int(environment["GPUPOOL_GPU_MEMORY_MIB"])
    return found


def by_form(site: Site, slice_name: str) -> Callable[[str], tuple[int, Any]]:
    """Log in and choose a slice on the page, as a browser does."""

    def begin(name: str) -> tuple[int, Any]:
        person = Person(site, name)
        status, page = person.page("/hub/spawn")
        offered = map(html.unescape, re.findall(r'name="gpupool-choice" value="([^"]*)"', page))
        choice = next((offer for offer in offered if f'"{slice_name}"' in offer), None)
        if choice is None:
            return status if status >= 400 else 404, page
        return person.submit("/hub/spawn", {"gpupool-choice": choice, "when_full": "wait"})

    return begin


def test_a_whole_card_for_each(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """Sixteen cards are for sessions: sixteen get one, the others hear their place and what it waits for."""

    def all_know(stories: list[Story]) -> bool:
        leased(site)
        waiting = [story for story in stories if NUMBER in story.last]
        return len(waiting) + sum(bool(story.ready or story.refused) for story in stories) == len(stories)

    stories = rush(site, NAMES, by_form(site, "1"), all_know, PATIENCE_S)
    with capsys.disabled():
        print(f"\n  fifty, a whole card each: {figures(stories, NUMBER)}")
    waiting = [story for story in stories if story.ready is None]
    assert len(stories) - len(waiting) == len(site.leases()) == 16, site.tail()
    assert leased(site) == used(site)
    for story in waiting:
        assert re.search(r"You are number \d+ in the queue.*\. \S.*\d", story.last), story


def test_an_eighth_for_each(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """Eight share a card, and a few start at once: all get in, told meanwhile how many start before them."""

    def all_in(stories: list[Story]) -> bool:
        leased(site)
        return all(story.ready or story.refused for story in stories)

    stories = rush(site, NAMES, lambda name: site.begin(name, {"slice": "1/8"}), all_in, PATIENCE_S)
    with capsys.disabled():
        print(f"\n  fifty, an eighth each: {figures(stories, BEFORE)}")
    late = {story.name: story.last for story in stories if story.ready is None}
    assert late == {}, site.tail()
    assert len(site.leases()) == len(servers(site)) == len(NAMES)
    assert leased(site) == used(site)
    assert sum(any(BEFORE in words for _, words in story.told) for story in stories) >= len(NAMES) // 2
