"""A login over every way in: what is asked of the pool, what the server gets, what a refusal looks like."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.spawner.backends import PooledForm, StubBackend
from tests.spawner.conftest import Site
from tests.spawner.scripted_pool import TOKEN, error

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_nothing_chosen_is_the_smallest_choice(site: Site) -> None:
    user = site.user("vision", "nlp")
    assert (await site.start(user, {}))[0] == 201
    (request,) = site.pool.requests
    assert request.pop("version")
    assert request == {
        "user": user.name,
        "server": "",
        "groups": ["vision", "nlp"],
        "group": None,
        "slice": None,
        "partition": None,
        "wait": True,
    }
    assert site.pool.tokens == {f"token {TOKEN}"}


async def test_a_choice_reaches_the_pool_and_its_lease_the_server(
    site: Site, stub: type[StubBackend]
) -> None:
    user = site.user("vision")
    site.settings["config"].PooledStub.environment = {
        "MINE": "kept",
        "CUDA_VISIBLE_DEVICES": "all",
        "PYTORCH_ALLOC_CONF": "max_split_size_mb:64",
    }
    choice = {"group": "vision", "slice": "1/8", "partition": "development", "when_full": "wait"}
    assert (await site.start(user, choice))[0] == 201
    request = site.pool.requests[0]
    assert (request["group"], request["slice"], request["partition"]) == ("vision", "1/8", "development")
    environment = stub.starts[0]
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-aaaa"
    assert environment["MINE"] == "kept"
    assert environment["PYTORCH_ALLOC_CONF"] == "max_split_size_mb:64,per_process_memory_fraction:0.1250"


async def test_named_servers_have_leases_of_their_own(site: Site) -> None:
    user = site.user("vision")
    assert (await site.start(user))[0] == 201
    assert (await site.start(user, {"slice": "0"}, name="second"))[0] == 201
    assert [request["server"] for request in site.pool.requests] == ["", "second"]
    assert len(site.pool.live) == 2
    assert (await site.api(user, "DELETE", "servers/second"))[0] == 204
    assert len(site.pool.live) == 1


async def test_groups_are_those_of_now(site: Site) -> None:
    user = site.user("vision")
    async with await site.browser(user):
        site.put_into(user, "nlp")
        await site.start(user, {})
    assert site.pool.requests[0]["groups"] == ["nlp"]


async def test_a_user_of_no_group_is_sent_as_such(site: Site) -> None:
    await site.start(site.user(), {})
    assert site.pool.requests[0]["groups"] == []


HOSTILE = [
    ({"slice": ["1/8"]}, 'The option slice must be text such as "1/8", "1" or "0" (CPU only), not ["1/8"].'),
    ({"slice": 1}, "must be text"),
    ({"slice": {"a": {"b": [None] * 900}}}, "must be text"),
    ({"slice": True}, "must be text"),
    ({"slice": ""}, "printable letters"),
    ({"slice": "1/8\n\x00"}, "printable letters"),
    ({"group": "x" * 5000}, "1 to 255 printable letters"),
    ({"group": "\ud800"}, "printable letters"),
    ({"group": 1e400}, "must be text"),
    ({"partition": []}, "must be text"),
    ({"when_full": "never"}, 'when_full must be "wait" or "cpu", not "never".'),
    ({"when_full": "<script>"}, "when_full must be"),
]


@pytest.mark.parametrize(("options", "sentence"), HOSTILE)
async def test_hostile_options_get_one_sentence_and_change_nothing(
    site: Site, options: Any, sentence: str
) -> None:
    status, body = await site.start(site.user("vision"), options)
    assert status == 400
    message = json.loads(body)["message"]
    assert sentence in message
    assert len(message) < 200
    assert "\n" not in message
    assert site.pool.requests == []


async def test_options_of_the_site_are_left_alone(site: Site) -> None:
    user = site.user("vision")
    assert (await site.start(user, {"image": ["big"], "slice": "1/8"}))[0] == 201
    assert user.spawners[""].user_options == {"image": ["big"], "slice": "1/8"}


@pytest.mark.parametrize("server_status", [409, 422])
async def test_a_refusal_has_the_numbers_and_is_no_error_of_the_hub(
    site: Site, stub: type[StubBackend], server_status: int
) -> None:
    refusal = error("user_limit", "You have 2 of 2 servers.", used=2, limit=2, hint="Stop one first.")
    site.pool.refusals.append((server_status, refusal))
    user = site.user("vision")
    status, body = await site.start(user, {})
    assert status == 409
    assert json.loads(body)["message"] == "You have 2 of 2 servers. Stop one first."
    assert stub.starts == []
    assert await site.settled(user) is None or not user.spawners[""].active


async def test_markup_and_surrogates_of_a_refusal_stay_text(site: Site) -> None:
    site.pool.refusals.append((422, error("invalid", "No slice \ud800 <b>x</b>\nhere.")))
    status, body = await site.start(site.user("vision"), {"slice": "1/3"})
    assert status == 409
    assert json.loads(body)["message"] == "No slice \\ud800 <b>x</b> here."


async def test_a_failed_choice_is_not_the_next_default(site: Site) -> None:
    user = site.user("vision")
    assert (await site.start(user, {"slice": "1/8", "image": "a"}))[0] == 201
    await site.api(user, "DELETE")
    site.pool.refusals.append((409, error("user_limit", "Too much.")))
    assert (await site.start(user, {"slice": "2", "image": "b"}))[0] == 409
    await site.settled(user)
    assert user.orm_spawners[""].user_options == {"slice": "1/8", "image": "b"}
    assert (await site.start(user))[0] == 201
    assert site.pool.requests[-1]["slice"] == "1/8"


async def test_the_form_offers_and_its_choice_is_taken(site: Site) -> None:
    user = site.user("vision")
    browser = await site.browser(user)
    async with browser:
        page = await (await browser.get(f"{site.url}/spawn/{user.name}")).text()
        assert "1/8 of a GPU" in page
        assert site.pool.asked == {"user": user.name, "groups": "vision"}
        reply = await browser.post(
            f"{site.url}/spawn/{user.name}",
            params={"_xsrf": site.xsrf(browser)},
            data={"gpupool-choice": '["vision", "1/8", "development"]', "when_full": "cpu"},
            allow_redirects=False,
        )
        assert reply.status == 302
    await site.settled(user)
    request = site.pool.requests[0]
    assert (request["group"], request["slice"], request["wait"]) == ("vision", "1/8", False)
    assert user.orm_spawners[""].user_options == {
        "group": "vision",
        "slice": "1/8",
        "partition": "development",
        "when_full": "cpu",
    }


async def test_a_refusal_is_shown_above_the_form(site: Site) -> None:
    user = site.user("vision")
    site.pool.refusals.append((409, error("exceeds_limit", "vision has <6> of 6 GPUs.")))
    async with await site.browser(user) as browser:
        reply = await browser.post(
            f"{site.url}/spawn/{user.name}",
            params={"_xsrf": site.xsrf(browser)},
            data={"gpupool-choice": '["vision", "1", null]'},
        )
        page = await reply.text()
    assert reply.status == 409
    assert "Error: vision has &lt;6&gt; of 6 GPUs." in page
    assert "1/8 of a GPU" in page


@pytest.mark.parametrize("value", ["", "x", "[1]", "{}", '["vision"]', '[["a"],1,null]'])
async def test_a_forged_form_is_refused(site: Site, value: str) -> None:
    user = site.user("vision")
    async with await site.browser(user) as browser:
        reply = await browser.post(
            f"{site.url}/spawn/{user.name}",
            params={"_xsrf": site.xsrf(browser)},
            data={"gpupool-choice": value},
        )
    assert reply.status == 400
    assert site.pool.requests == []


async def test_a_link_with_options_starts_at_once(site: Site) -> None:
    user = site.user("vision")
    async with await site.browser(user) as browser:
        reply = await browser.get(
            f"{site.url}/spawn/{user.name}", params={"opt-slice": "1/8"}, allow_redirects=False
        )
    assert reply.status == 302
    assert site.pool.requests[0]["slice"] == "1/8"


async def test_the_site_keeps_its_form_its_reading_and_its_hooks(site: Site, stub: type[StubBackend]) -> None:
    site.use(PooledForm)
    calls: list[str] = []

    async def before(spawner: Any) -> None:
        calls.append("before")
        spawner.environment["FROM_HOOK"] = "yes"

    site.settings["config"].PooledForm.pre_spawn_hook = before
    site.settings["config"].PooledForm.post_stop_hook = lambda _spawner: calls.append("after")
    user = site.user("vision")
    async with await site.browser(user) as browser:
        page = await (await browser.get(f"{site.url}/spawn/{user.name}")).text()
        assert page.index('name="image"') < page.index("gpupool-choice")
        await browser.post(
            f"{site.url}/spawn/{user.name}",
            params={"_xsrf": site.xsrf(browser)},
            data={"image": "big", "gpupool-choice": '["vision", "1/8", null]'},
            allow_redirects=False,
        )
    await site.settled(user)
    assert user.orm_spawners[""].user_options == {"image": "big", "group": "vision", "slice": "1/8"}
    assert stub.starts[0]["FROM_HOOK"] == "yes"
    await site.api(user, "DELETE")
    assert calls == ["before", "after"]
