"""The policies printed in the documents are valid, and the page's example uses only what is active."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jupyter_gpupool.policy.load import load_policy

ROOT = Path(__file__).parents[2]


def examples(page: str) -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize("page", ["README.md", "docs/policy.md"])
def test_examples_load(page: str) -> None:
    found = examples(page)
    assert found
    for text in found:
        load_policy(text, source=page)


def test_the_page_shows_only_what_is_active() -> None:
    (text,) = examples("docs/policy.md")
    sentences = load_policy(text).inactive()
    assert sentences == []
