"""One demo and one real Chromium for all browser tests; a screenshot of each page is kept."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tour.lab import Demo

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
BUILT = Path(__file__).parents[2] / "jupyter_gpupool" / "labextension" / "package.json"
SCREENSHOTS = Path(__file__).parents[2] / "test-results"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    demo = Demo(tmp_path_factory.mktemp("browser") / "demo")
    try:
        demo.wait_for("Ctrl-C here ends the demo")
        yield demo
    finally:
        demo.interrupt()


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", headless=True, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(request: pytest.FixtureRequest, require) -> Iterator[object]:
    for package in ("playwright", "jupyterlab", "sklearn"):
        if importlib.util.find_spec(package) is None:
            require(f"{package} is not installed")
    if not BUILT.exists():
        require("the Lab extension is not built (make test builds it)")
    browser = request.getfixturevalue("browser")
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.set_default_timeout(30_000)
    yield page
    SCREENSHOTS.mkdir(exist_ok=True)
    page.screenshot(path=str(SCREENSHOTS / f"{request.node.name}.png"))
    page.context.close()
