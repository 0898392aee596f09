"""Keys in Authorization headers."""

from __future__ import annotations

import base64

import pytest

from lakebed.access.credentials import parse_authorization, read_secret
from lakebed.errors import Denied, Unauthenticated


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


@pytest.mark.parametrize(
    ("authorization", "secret"),
    [
        ("Bearer KEY", "KEY"),
        ("bearer  KEY ", "KEY"),
        ("Bearer ", None),
        ("", None),
        ("Digest KEY", None),
        (basic("anybody:KEY"), "KEY"),
        (basic("a:KEY").rstrip("="), "KEY"),
        (basic(":KEY"), "KEY"),
        (basic("ü:KEY:1").replace("Basic", "BASIC"), "KEY:1"),
        (basic("KEY"), None),
        (basic("anybody:"), None),
        ("Basic", None),
    ],
)
def test_key_is_the_bearer_token_or_the_basic_password(
    authorization: str, secret: str | None
) -> None:
    assert parse_authorization(authorization) == secret


@pytest.mark.parametrize("credentials", ["???", "a", "/w==", "YTpi YTpi"])
def test_basic_credentials_that_cannot_be_decoded_are_refused(credentials: str) -> None:
    with pytest.raises(Unauthenticated, match="base64"):
        parse_authorization(f"Basic {credentials}")


def test_basic_credentials_from_a_page_of_another_site_are_refused() -> None:
    """A browser adds them itself; a bearer token is added by a program."""
    headers = {"host": "lake.example:4318", "authorization": basic("anybody:KEY")}
    assert read_secret(headers) == "KEY"
    assert read_secret(headers | {"origin": "https://lake.example:4318"}) == "KEY"
    with pytest.raises(Denied, match="another site"):
        read_secret(headers | {"origin": "https://evil.example"})
    bearer = headers | {"origin": "https://evil.example", "authorization": "Bearer KEY"}
    assert read_secret(bearer) == "KEY"
