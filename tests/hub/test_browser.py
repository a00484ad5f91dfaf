"""People at a real Hub, in a real Chromium: the form, the queue, named servers, and what colleagues see."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Error, Locator, Page, expect, sync_playwright

from tests.browser.conftest import FLAGS, SCREENSHOTS
from tests.hub.site import PASSWORD, Site, until

pytestmark = [pytest.mark.requires_server("node", "chromium"), pytest.mark.timeout(240)]

SIDEBAR = "#jupyter-gpupool\\:sidebar"
SERVICE = "/services/gpupool/api/v1"
ROOMY = """
partitions:
  development:
    gpus: ["node1:*", "node2:*"]
    for: [session]
    slices: [{share: 1/8, cpus: 4, memory: 16GiB}, {share: 1/4}, {share: 1/2}, {gpus: 1}, {gpus: 0}]
  training: {gpus: ["node3:*", "node4:*"], for: [job]}
defaults: {cpus_per_gpu: 6, memory_per_gpu: 60GiB}
groups:
  vision: &each
    quota: {gpus: 6}
    user: {gpus: 1, sessions: 2, session_time: 4h}
  speech: *each
visibility: groups
run_as: service
"""
ONE_CARD = """
partitions:
  pool:
    gpus: ["*:*"]
    for: [session]
    slices:
      - {share: 1/8, cpus: 1, memory: 1GiB}
      - {gpus: 1, cpus: 2, memory: 8GiB}
      - {gpus: 0, cpus: 1, memory: 1GiB}
defaults: {cpus_per_gpu: 2, memory_per_gpu: 8GiB}
groups:
  vision:
    quota: {gpus: 6}
    user: {gpus: 1, sessions: 3, session_time: 4h}
    members: [ada, bob, chen, dora, emil, farah]
run_as: service
"""

Person = Callable[[Site, str], Page]


@pytest.fixture(scope="module")
def roomy(make_site: Callable[..., Site]) -> Site:
    """Cards enough, at most one for each; colleagues see groups, not names."""
    return make_site(policy=ROOMY).start()


@pytest.fixture(scope="module")
def one_card(make_site: Callable[..., Site]) -> Site:
    """One card for everybody."""
    return make_site(pool="1x1x8GiB", policy=ONE_CARD).start()


@pytest.fixture
def full(one_card: Site) -> Iterator[Site]:
    """The same while ada has that card; afterwards nobody has a server."""
    one_card.log_in("ada", {"slice": "1"})
    yield one_card
    _, users = one_card.api("GET", "users")
    for user in users:
        for server in user["servers"]:
            one_card.end(user["name"], server)
            one_card.gone(user["name"], server)
    until(lambda: one_card.leases() == [], "every lease is free", one_card.tail)


@pytest.fixture(scope="module")
def browser(make_site: Callable[..., Site]) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", headless=True, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def person(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Person]:
    """Return a function that logs somebody in, in a private window; a picture is kept of each at the end."""
    windows: dict[str, Page] = {}

    def log_in(site: Site, user: str) -> Page:
        page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
        windows[user] = page
        page.set_default_timeout(30_000)
        page.goto(site.url)
        page.get_by_label("Username").fill(user)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        return page

    yield log_in
    SCREENSHOTS.mkdir(exist_ok=True)
    for user, page in windows.items():
        with contextlib.suppress(Error):  # while a page changes there is none
            page.screenshot(path=str(SCREENSHOTS / f"{request.node.name}-{user}.png"))
        page.context.close()


def slice_of(page: Page, title: str) -> Locator:
    return page.locator(".offers").get_by_role("radio", name=f"{title} ")


def start(page: Page, title: str) -> None:
    """Choose a slice and click on Start."""
    slice_of(page, title).check()
    page.get_by_role("button", name="Start").click()


def arrives(page: Page, path: str) -> None:
    """Wait until the Hub has led its user to Lab."""
    page.wait_for_url(re.compile(f"{re.escape(path)}/lab"), timeout=60_000, wait_until="commit")


def held_by(site: Site, user: str) -> list[tuple[int, str]]:
    """Return what somebody has on cards: MiB, and of which group's quota."""
    return [(lease["mib"], lease["group"]) for lease in site.leases() if lease["user"] == user]


def described(radio: Locator) -> str:
    """What a screen reader says after the name of a choice."""
    text = radio.evaluate("it => document.getElementById(it.getAttribute('aria-describedby')).textContent")
    return str(text)


# The form, and what comes of it


def test_after_the_login_come_the_slices(roomy: Site, person: Person) -> None:
    page = person(roomy, "jun")
    expect(page.get_by_role("radio").last).to_have_accessible_name(re.compile("^CPU only 1 CPU · .*RAM"))
    for title in ("1/8 of a GPU", "1/4 of a GPU", "1/2 of a GPU", "1 GPU", "CPU only"):
        expect(slice_of(page, title)).to_be_enabled()
    expect(slice_of(page, "1/8 of a GPU")).to_be_checked()
    expect(page.get_by_role("meter", name="You", exact=True)).to_have_attribute(
        "aria-valuetext", "0 of 1 GPU"
    )
    expect(page.get_by_role("meter", name="vision")).to_be_visible()
    expect(page.get_by_text("16 GPUs idle")).to_be_visible()
    assert page.get_by_text("If it is not free").count() == 0

    slice_of(page, "1/8 of a GPU").focus()
    page.keyboard.press("ArrowDown")
    expect(slice_of(page, "1/4 of a GPU")).to_be_checked()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Start")).to_be_focused()


def test_an_eighth_opens_lab_whose_sidebar_shows_the_quota(roomy: Site, person: Person) -> None:
    page = person(roomy, "ada")
    start(page, "1/8 of a GPU")
    arrives(page, "/user/ada")
    page.wait_for_selector("#jupyterlab-splash", state="detached")
    page.locator('li[data-id="jupyter-gpupool:sidebar"]').click()
    sidebar = page.locator(SIDEBAR)
    own = sidebar.get_by_role("progressbar", name="Your GPUs, group vision")
    expect(own).to_have_attribute("aria-valuetext", "0.125 of 1")
    expect(sidebar.get_by_role("progressbar", name="GPUs, group vision", exact=True)).to_be_visible()
    assert held_by(roomy, "ada") == [(4096, "vision")]


def test_a_group_is_chosen_by_keyboard(roomy: Site, person: Person) -> None:
    roomy.api("POST", "users/gita")
    roomy.api("POST", "groups/speech/users", {"users": ["gita"]})
    page = person(roomy, "gita")
    page.get_by_role("radio", name="vision").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("meter", name="speech")).to_be_visible()
    expect(page.get_by_role("meter", name="vision")).to_be_hidden()
    page.get_by_role("button", name="Start").click()
    until(
        lambda: held_by(roomy, "gita") == [(4096, "speech")], "gita has a slice of speech's quota", roomy.tail
    )


def test_named_servers_are_started_from_the_hubs_home(roomy: Site, person: Person) -> None:
    roomy.log_in("hugo", {"slice": "1/8"})
    page = person(roomy, "hugo")
    page.goto(f"{roomy.url}/hub/home")
    page.get_by_label("server name").fill("second")
    page.get_by_role("button", name="Add New Server").click()
    page.get_by_role("row", name="second").get_by_role("button", name="start").click()
    whole = slice_of(page, "1 GPU")
    expect(whole).to_be_disabled()
    assert "is 1 card: 0.125 held" in described(whole)
    page.screenshot(path=str(SCREENSHOTS / "form_greyed.png"))
    start(page, "CPU only")
    arrives(page, "/user/hugo/second")
    assert held_by(roomy, "hugo") == [(4096, "vision")]


def test_a_refusal_is_shown_above_the_form_with_the_numbers(roomy: Site, person: Person) -> None:
    page = person(roomy, "ines")
    slice_of(page, "1 GPU").check()
    roomy.begin("ines", {"slice": "1/8"}, server="meanwhile")
    until(lambda: held_by(roomy, "ines"), "a slice is taken meanwhile")
    page.get_by_role("button", name="Start").click()
    error = page.locator(".spawn-error-msg")
    expect(error).to_contain_text("The limit of ines in vision is 1 card: 0.125 held, and this needs 1 card.")
    expect(slice_of(page, "1 GPU")).to_be_disabled()
    expect(slice_of(page, "1/8 of a GPU")).to_be_checked()


# What the service tells a browser


def test_a_browser_reaches_the_service_as_its_user(roomy: Site, person: Person) -> None:
    page = person(roomy, "bob")
    page.goto(f"{roomy.url}{SERVICE}/whoami")
    who = json.loads(page.inner_text("pre"))
    assert (who["user"], [group["name"] for group in who["groups"]]) == ("bob", ["vision"])

    job = {"kind": "command", "entry": {"argv": ["true"]}, "resources": {"gpus": 1}, "time": "5m"}
    jobs = f"{roomy.url}{SERVICE}/jobs"
    assert page.request.post(jobs, data=job).status == 403
    page.goto(jobs)
    assert json.loads(page.inner_text("pre"))["jobs"] == []


def test_colleagues_see_the_use_but_not_whose_it_is(roomy: Site, person: Person) -> None:
    roomy.log_in("karl", {"slice": "1/2"})
    token = roomy.token_of("karl", "access:services!service=gpupool", "custom:gpupool:submit")
    job = {
        "kind": "command",
        "name": "a-secret-of-karl",
        "entry": {"argv": ["sleep", "600"]},
        "resources": {"gpus": 1},
        "time": "1h",
    }
    assert roomy.pool("POST", "jobs", job, token=token)[0] == 201
    page = person(roomy, "lena")
    meter = page.get_by_role("meter", name="speech")
    assert int(meter.get_attribute("aria-valuenow") or 0) >= 500
    assert "karl" not in page.content()
    for path in ("pool", "queue", "quota"):
        page.goto(f"{roomy.url}{SERVICE}/{path}")
        assert "speech" in page.content()
        assert "karl" not in page.content()


# When nothing is free


def test_who_waits_sees_place_reason_and_expected_start(full: Site, person: Person) -> None:
    first, second = person(full, "bob"), person(full, "chen")
    for page in (first, second):
        expect(slice_of(page, "CPU only")).to_be_checked()
        assert "1 of 1 card in pool" in described(slice_of(page, "1 GPU"))
        expect(page.get_by_text(re.compile("^You would wait until about")).first).to_be_visible()
        start(page, "1 GPU")
        expect(page.locator("#progress-message")).to_contain_text("1 of 1 card in pool")
    expect(first.locator("#progress-message")).to_contain_text("You are number 1 in the queue.")
    expect(first.locator("#progress-message")).to_contain_text("Expected start: about")
    expect(second.locator("#progress-message")).to_contain_text("You are number 2 in the queue")
    second.screenshot(path=str(SCREENSHOTS / "waiting.png"))

    first.get_by_role("button", name="Stop Server").click()
    full.gone("bob")
    expect(second.locator("#progress-message")).to_contain_text("You are number 1 in the queue.")
    expect(first.get_by_role("heading", name="Server not running")).to_be_visible()
    full.end("ada")
    arrives(second, "/user/chen")
    assert [lease["user"] for lease in full.leases()] == ["chen"]


def test_the_hubs_home_stops_who_waits(full: Site, person: Person) -> None:
    page = person(full, "dora")
    start(page, "1 GPU")
    expect(page.locator("#progress-message")).to_contain_text("You are number 1 in the queue.")
    page.goto(f"{full.url}/hub/home")
    page.get_by_role("button", name="Stop My Server").click()
    full.gone("dora")
    expect(page.get_by_role("button", name="Start My Server")).to_be_visible()


def test_the_pages_stop_stops_the_named_server_that_waits_and_no_other(full: Site, person: Person) -> None:
    full.log_in("bob", {"slice": "0"})
    page = person(full, "bob")
    page.goto(f"{full.url}/hub/spawn/bob/second")
    start(page, "1 GPU")
    expect(page.locator("#progress-message")).to_contain_text("You are number 1 in the queue.")
    page.get_by_role("button", name="Stop Server").click()
    full.gone("bob", "second")
    assert (full.server("bob") or {}).get("ready")


def test_cpu_only_instead_of_waiting(full: Site, person: Person) -> None:
    page = person(full, "emil")
    page.get_by_role("radio", name="Start with CPU only").check()
    start(page, "1 GPU")
    arrives(page, "/user/emil")
    assert [lease["user"] for lease in full.leases()] == ["ada"]


def test_the_hub_lives_on_without_the_service(one_card: Site, person: Person) -> None:
    socket = one_card.home / "hub" / "hub.sock"
    away = socket.with_suffix(".away")
    socket.rename(away)
    try:
        page = person(one_card, "farah")
        expect(page.locator(".gpupool .problem")).to_contain_text("pool")
        assert page.get_by_role("radio").count() == 0
        page.get_by_role("button", name="Start").click()
        expect(page.get_by_text("The GPU pool's service does not answer").first).to_be_visible()
        page.screenshot(path=str(SCREENSHOTS / "service_down.png"))
        page.goto(f"{one_card.url}/hub/home")
        expect(page.get_by_role("button", name="Start My Server")).to_be_visible()
    finally:
        away.rename(socket)
    page.goto(f"{one_card.url}/hub/spawn")
    expect(slice_of(page, "1/8 of a GPU")).to_be_checked()
