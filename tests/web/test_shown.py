"""What templates show is escaped, and leads to pages where it names them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.web.shown import link_pages


def test_the_address_of_a_page_becomes_a_link() -> None:
    assert link_pages("look at all metrics: /measures") == (
        'look at all metrics: <a href="/measures">/measures</a>'
    )
    both = link_pages("see /lake, or (/sql)")
    assert both.count("<a href=") == 2


@pytest.mark.parametrize(
    "text",
    ["/v1/logs", "/etc/hosts", "//lake", "s3://bucket/lake", "./lake", "/lakes", "/lake/../x", "/"],
)
def test_other_paths_stay_text(text: str) -> None:
    assert link_pages(f"look at {text} again") == f"look at {text} again"


@given(st.text(alphabet="<>&\"' /lakesqx"))
def test_everything_else_is_escaped(text: str) -> None:
    html = str(link_pages(text))
    for path in ("/lake", "/sql"):
        html = html.replace(f'<a href="{path}">{path}</a>', "")
    assert not set("<>\"'") & set(html)
