"""The spawn page: what it presets and greys, that nothing in it is markup, and how it works in a browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright

from jupyter_gpupool.spawner.form import render, unavailable, view
from tests.spawner.conftest import Site
from tests.spawner.scripted_pool import CPU, choices, error, group, offer

pytestmark = pytest.mark.asyncio(loop_scope="module")

EIGHTH = offer("1/8", "1/8 of a GPU, 4 CPUs, 16GiB", 125)
QUARTER = offer("1/4", "1/4 of a GPU, 8 CPUs, 32GiB", 250)
HALF_WAITS = offer(
    "1/2",
    "1/2 of a GPU, 12 CPUs, 60GiB",
    500,
    "waits",
    "Free when bob's server ends.",
    expected_start="2026-12-01T14:05:00Z",
)
TWO_REFUSED = offer("2", "2 GPUs, 12 CPUs, 120GiB", 2000, "refused", "You have 0.5 of 2 GPUs.")
HOSTILE = "<script>document.title='broken'</script>"


def checked(page: dict[str, Any]) -> list[str]:
    return [offer["slice"] for group in page["groups"] for offer in group["offers"] if offer["checked"]]


async def test_the_smallest_that_is_free_is_preset() -> None:
    assert checked(view(choices(group("vision", CPU, QUARTER, EIGHTH)), {})) == ["1/8"]


async def test_the_last_choice_is_preset_if_it_can_be_had() -> None:
    offers = choices(group("vision", CPU, EIGHTH, HALF_WAITS, TWO_REFUSED))
    assert checked(view(offers, {"slice": "1/2"})) == ["1/2"]
    assert checked(view(offers, {"slice": "2"})) == ["1/8"]
    assert checked(view(offers, {"slice": ["no text"]})) == ["1/8"]


async def test_when_no_gpu_is_free_cpu_only_is_preset() -> None:
    assert checked(view(choices(group("vision", HALF_WAITS, CPU)), {})) == ["0"]


async def test_when_everything_is_refused_nothing_is_preset() -> None:
    assert checked(view(choices(group("vision", TWO_REFUSED)), {})) == []


async def test_the_group_shown_is_the_last_the_default_or_the_first() -> None:
    def shown(default: str | None, **remembered: Any) -> str:
        page = view(choices(group("vision"), group("nlp"), default_group=default), remembered)
        (name,) = [group["name"] for group in page["groups"] if group["shown"]]
        return str(name)

    assert shown(None) == "vision"
    assert shown("nlp") == "nlp"
    assert shown("nlp", group="vision") == "vision"
    assert shown("gone", group="gone too") == "vision"


async def test_amounts_are_said_with_their_unit() -> None:
    page = view(choices(group("vision", user_limit_milli=1000, limit_milli=None)), {})
    assert [meter["text"] for meter in page["groups"][0]["meters"]] == ["0.5 of 1 GPU", "1 of 2", "3.25 GPUs"]


async def test_waiting_or_cpu_only_is_asked_only_where_one_may_wait() -> None:
    assert "when_full" not in render(choices(group("vision", CPU, EIGHTH)), {})
    assert 'value="cpu" checked' in render(choices(group("vision", HALF_WAITS)), {"when_full": "cpu"})


async def test_nothing_is_markup() -> None:
    hostile = offer(HOSTILE, HOSTILE, 1, "refused", HOSTILE, partition=HOSTILE, expected_start=None)
    free = [{"partition": HOSTILE, "gpus": 1, "idle_gpus": 0, "memory_mib": 0}]
    page = render(
        choices(group(HOSTILE, hostile), group("b"), message=HOSTILE, free=free), {"slice": HOSTILE}
    )
    assert "<script>document" not in page
    assert HOSTILE not in unavailable(HOSTILE)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def chromium() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="module")
async def page(site: Site, chromium: Browser) -> AsyncIterator[Page]:
    """The spawn page of a user of two groups, on a narrow and dark screen."""
    site.pool.choices = choices(
        group("vision", CPU, EIGHTH, HALF_WAITS, TWO_REFUSED, EIGHTH | {"slice": HOSTILE, "label": HOSTILE}),
        group("nlp", CPU, TWO_REFUSED),
        default_group="vision",
    )
    user = site.user("vision", "nlp")
    context = await chromium.new_context(viewport={"width": 360, "height": 800}, color_scheme="dark")
    page = await context.new_page()
    page.set_default_timeout(15_000)
    await page.goto(f"{site.url}/login")
    await page.fill("#username_input", user.name)
    await page.fill("#password_input", user.name)
    await page.click("#login_submit")
    await page.goto(f"{site.url}/spawn")
    yield page
    await context.close()


@pytest.mark.requires_server("chromium")
async def test_the_page_in_a_browser(site: Site, page: Page) -> None:
    assert await page.title() == "JupyterHub"
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert await page.get_by_role("radio", name="1/8 of a GPU").is_checked()
    refused = page.get_by_role("radio", name="2 GPUs")
    assert await refused.is_disabled()
    assert (
        await refused.evaluate(
            "radio => document.getElementById(radio.getAttribute('aria-describedby')).textContent"
        )
        == "You have 0.5 of 2 GPUs."
    )
    assert await page.get_by_role("meter").count() == 3
    assert await page.get_by_text("You would wait until about").is_visible()

    await page.get_by_role("radio", name="vision").focus()
    await page.keyboard.press("ArrowRight")
    assert await page.get_by_role("radio", name="CPU only 4 CPUs").is_checked()
    assert not await page.get_by_role("radio", name="1/8 of a GPU").is_visible()

    await page.keyboard.press("ArrowLeft")
    await page.get_by_text("1/2 of a GPU").click()
    await page.get_by_role("radio", name="Start with CPU only").check()
    site.pool.refusals.append((409, error("user_limit", "You have <b>2</b> of 2 servers.")))
    await page.get_by_role("button", name="Start").click()
    await page.get_by_text("Error: You have <b>2</b> of 2 servers.").wait_for()
    request = site.pool.requests[0]
    assert (request["group"], request["slice"], request["partition"], request["wait"]) == (
        "vision",
        "1/2",
        "development",
        False,
    )


@pytest.mark.requires_server("chromium")
async def test_waiting_in_a_browser_until_it_is_stopped(site: Site, page: Page) -> None:
    site.pool.free = False
    await page.get_by_role("button", name="Start").click()
    await page.get_by_text("You are number 3 in the queue.").first.wait_for()
    assert await page.locator("#progress-message bob").count() == 0
    site.pool.move_up(1)
    await page.get_by_text("You are number 1 in the queue.").first.wait_for()
    await page.get_by_role("button", name="Stop Server").click()
    await site.until(lambda: site.pool.withdrawn)
    assert site.pool.live == []
