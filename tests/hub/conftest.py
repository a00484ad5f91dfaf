"""A site for each module that asks for one; it leaves no process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hub.site import Site


@pytest.fixture(scope="module")
def make_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Site]]:
    """Return a function that makes a site; all of them are ended after the module."""
    made: list[Site] = []

    def make(**parts: Any) -> Site:
        folder: Path = tmp_path_factory.mktemp("site")
        made.append(Site(folder, **parts))
        return made[-1]

    yield make
    for site in made:
        site.close()
    assert {pid for site in made for pid in site.processes()} == set()
