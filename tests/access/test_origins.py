"""Pages of other sites get nothing from a server that asks for no keys."""

from __future__ import annotations

import pytest

from lakebed.access.origins import require_own_site
from lakebed.errors import Denied


@pytest.mark.parametrize(
    "host", ["localhost:4318", "127.0.0.1:4318", "[::1]:4318", "10.1.2.3", "lake.localhost"]
)
def test_programs_and_own_pages_are_let_in(host: str) -> None:
    require_own_site(host, None, any_name=False)
    require_own_site(host, f"http://{host}", any_name=False)
    require_own_site(host.upper(), f"HTTP://{host}", any_name=False)


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("localhost:4318", "https://evil.example"),
        ("localhost:4318", "http://localhost:8000"),
        ("localhost:4318", "http://localhost:43180"),  # the host is a prefix of the origin's
        ("localhost:4318", "http://localhost:431"),
        ("localhost:4318", "http://localhost"),
        ("localhost", "http://localhost:4318"),
        ("localhost:4318", "http://xlocalhost:4318"),
        ("localhost:4318", "localhost:4318"),  # without a scheme
        ("localhost:4318", "null"),
        ("evil.example:4318", None),
        ("evil.example:4318", "http://evil.example:4318"),  # a name that was pointed here
        ("localhost.evil.example", None),
        ("[::1", None),
        ("", None),
    ],
)
def test_pages_of_others_are_not(host: str, origin: str | None) -> None:
    with pytest.raises(Denied):
        require_own_site(host, origin, any_name=False)


def test_whoever_is_open_to_all_goes_by_any_name() -> None:
    require_own_site("lake.example", None, any_name=True)
    require_own_site("lake.example", "https://lake.example", any_name=True)
    with pytest.raises(Denied):
        require_own_site("lake.example", "https://evil.example", any_name=True)
