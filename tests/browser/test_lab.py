"""The product in a real browser: the sidebar, and the tour's notebook."""

from __future__ import annotations

import re

import pytest

from tests.tour.lab import Demo

pytestmark = [pytest.mark.requires_server("chromium"), pytest.mark.timeout(240)]

PANEL = "#jupyter-gpupool\\:sidebar"


def open_lab(page, demo: Demo, path: str = "/lab") -> None:
    page.goto(f"{demo.base}{path}?token={demo.token}&reset")
    page.wait_for_selector("#jupyterlab-splash", state="detached")


def open_sidebar(page) -> None:
    page.locator('li[data-id="jupyter-gpupool:sidebar"]').click()
    page.wait_for_selector(f"{PANEL} >> text=Quota")


def test_the_sidebar_shows_the_quota_and_says_simulated(page, demo: Demo) -> None:
    open_lab(page, demo)
    open_sidebar(page)
    panel = page.locator(PANEL)
    assert "Simulated pool" in panel.inner_text()
    assert "vision" in panel.inner_text()
    bars = panel.get_by_role("progressbar")
    assert bars.count() >= 2
    for number in range(bars.count()):
        bar = bars.nth(number)
        assert bar.get_attribute("aria-label") or bar.get_attribute("aria-labelledby")
        assert bar.get_attribute("aria-valuenow") is not None
        assert bar.get_attribute("aria-valuemax") is not None


def test_a_job_submitted_in_the_notebook_appears_in_the_sidebar(page, demo: Demo) -> None:
    open_lab(page, demo, "/lab/tree/tour.ipynb")
    page.wait_for_selector("#jp-bottom-panel >> text=/\\| Idle/")
    open_sidebar(page)
    page.locator(".jp-CodeCell").first.click()
    for _ in range(3):  # the overview, a paragraph, submit
        page.keyboard.press("Shift+Enter")
    page.wait_for_selector(".jp-OutputArea-output >> text=/took the function rest/")
    page.wait_for_selector(f"{PANEL} >> text=rest-0")
    assert re.search("running|starting|queued|waiting", page.locator(PANEL).inner_text(), re.I)


def test_the_sidebar_can_be_used_by_keyboard(page, demo: Demo) -> None:
    open_lab(page, demo)
    open_sidebar(page)
    refresh = page.get_by_role("button", name="Refresh the GPU pool")
    refresh.focus()
    with page.expect_response(re.compile("/jupyter-gpupool/quota")) as answer:
        page.keyboard.press("Enter")
    assert answer.value.ok


def test_the_sidebar_follows_the_dark_theme(page, demo: Demo) -> None:
    open_lab(page, demo)
    open_sidebar(page)
    colour = "element => getComputedStyle(element).color"
    light = page.locator(f"{PANEL} h2").evaluate(colour)
    page.get_by_role("menuitem", name="Settings", exact=True).click()
    page.locator('.lm-Menu-itemLabel:text-is("Theme")').hover()
    page.locator('.lm-Menu-itemLabel:text-is("JupyterLab Dark")').click()
    page.wait_for_selector('body[data-jp-theme-light="false"]', state="attached")
    assert page.locator(f"{PANEL} h2").evaluate(colour) != light


def test_the_sidebar_hears_of_changes_and_acts_on_jobs(page, demo: Demo) -> None:
    heard: list[str] = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: heard.append(str(frame))))
    open_lab(page, demo)
    open_sidebar(page)
    demo.command("submit", "--gpus", "0", "--time", "9m", "--name", "from-afar", "--", "sleep", "500")
    job = page.locator(f"{PANEL} ul[aria-label='My jobs'] > li", has_text="from-afar")
    job.get_by_text("running").wait_for(timeout=60_000)
    job.get_by_role("button", name=re.compile("^Cancel job")).click()
    job.get_by_text("cancelled").wait_for(timeout=60_000)
    assert any("jupyter_gpupool/pool/v1" in frame and "from-afar" in frame for frame in heard)


def test_what_happens_to_a_job_is_told(page, demo: Demo) -> None:
    open_lab(page, demo)
    open_sidebar(page)
    demo.command("submit", "--gpus", "0", "--time", "9m", "--name", "brief", "--", "sh", "-c", "exit 3")
    page.get_by_text(re.compile("^Job \\d+ brief has failed")).first.wait_for(timeout=60_000)
