from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_gpupool.policy.membership import NotAMember, choose_group, groups_of
from jupyter_gpupool.policy.model import Policy

Load = Callable[[str], Policy]

TEXT = """\
groups:
  vision: {members: [ada, bob]}
  speech: {members: [bob, eve]}
  nlp: {}
  guests: {}
users: {bob: {default_group: speech}, zoe: {default_group: nlp}}
"""


@pytest.fixture
def site(policy: Load) -> Policy:
    return policy(TEXT)


@pytest.fixture
def open_site(policy: Load) -> Policy:
    return policy(TEXT + "default_group: guests\n")


def test_without_a_hub_the_policy_says_who_belongs_where(site: Policy) -> None:
    assert groups_of(site, "ada") == ["vision"]
    assert groups_of(site, "bob") == ["vision", "speech"]
    assert groups_of(site, "zoe") == ["nlp"]
    assert groups_of(site, "stranger") == []


def test_with_a_hub_the_hub_alone_says_it(site: Policy) -> None:
    assert groups_of(site, "ada", {"nlp", "speech", "unknown"}) == ["speech", "nlp"]
    assert groups_of(site, "ada", set()) == []
    assert groups_of(site, "zoe", {"vision"}) == ["vision"]


def test_a_user_of_no_group_is_in_the_default_group(open_site: Policy) -> None:
    assert groups_of(open_site, "stranger") == ["guests"]
    assert groups_of(open_site, "ada", ["unknown"]) == ["guests"]
    assert groups_of(open_site, "ada") == ["vision"]


def test_the_group_asked_for_comes_first(site: Policy) -> None:
    assert choose_group(site, "bob", "vision") == "vision"


def test_then_the_user_s_default_then_the_first_in_policy_order(site: Policy) -> None:
    assert choose_group(site, "bob") == "speech"
    assert choose_group(site, "eve") == "speech"
    assert choose_group(site, "bob", hub_groups=["nlp", "vision"]) == "vision"
    assert choose_group(site, "stranger") is None


def test_a_group_of_others_is_refused_with_one_s_own(site: Policy) -> None:
    with pytest.raises(NotAMember) as caught:
        choose_group(site, "bob", "nlp")
    assert str(caught.value) == 'You are not in the group "nlp". Your groups: vision, speech.'
    with pytest.raises(NotAMember, match=r"You are in no group of the policy\."):
        choose_group(site, "stranger", "nlp")
