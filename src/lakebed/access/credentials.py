"""Keys in Authorization headers: ``Bearer KEY``, or ``Basic`` with the key as the password. The
user name of Basic credentials is ignored. Pure functions.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from lakebed.access.origins import require_own_site
from lakebed.errors import Unauthenticated


def has_credentials(headers: Mapping[str, str]) -> bool:
    """Return True if a request has Bearer or Basic credentials, readable or not."""
    return headers.get("authorization", "").lower().startswith(("bearer ", "basic "))


def read_secret(headers: Mapping[str, str]) -> str | None:
    """Return the key of an HTTP request, or None without one.

    A browser adds the Basic credentials of a server to requests that other sites' pages make, so
    Basic is refused with `Denied` if the Origin header names another site.
    """
    authorization = headers.get("authorization", "")
    secret = parse_authorization(authorization)
    if secret is not None and _is_basic(authorization):
        require_own_site(headers.get("host", ""), headers.get("origin"), any_name=True)
    return secret


def parse_authorization(authorization: str) -> str | None:
    """Return the key in a header's value, or None if it has another scheme or no key.

    Raise `Unauthenticated` for Basic credentials that cannot be decoded.
    """
    scheme, _, credentials = authorization.partition(" ")
    credentials = credentials.strip()
    if _is_basic(authorization):
        unpadded = credentials.rstrip("=")  # Arrow's Go library, and so ADBC, sends no padding
        padded = unpadded + "=" * (-len(unpadded) % 4)
        try:
            decoded = base64.b64decode(padded, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise Unauthenticated(
                "the Basic credentials are not base64 of UTF-8 text",
                hint="send USER:KEY in base64",
            ) from None
        return decoded.partition(":")[2] or None
    return (credentials or None) if scheme.lower() == "bearer" else None


def _is_basic(authorization: str) -> bool:
    return authorization.partition(" ")[0].lower() == "basic"
