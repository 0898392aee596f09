"""Protection against requests from pages of other sites (CSRF and DNS rebinding). A server without
keys trusts every client that reaches its port, and a browser on the same machine reaches it on
behalf of every open site. Pure functions.
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from lakebed.errors import Denied

_HINT = "name the server as localhost or by its number, use keys, or say --without-keys"


def require_own_site(host: str, origin: str | None, *, any_name: bool) -> None:
    """Raise `Denied` for a request from a page of another site, which browsers name in ``Origin``,
    and, unless ``any_name``, for a request to a host name that an attacker may have pointed at
    this machine."""
    if origin is not None and origin.partition("://")[2].lower() != host.lower():
        raise Denied("this request comes from a page of another site", hint=_HINT)
    if not any_name and not _is_own(host):
        raise Denied(f"this server does not go by the name {host!r}", hint=_HINT)


def _is_own(host: str) -> bool:
    """Return True if a host, with or without a port, is localhost or an IP address."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or name.endswith(".localhost") or bool(ip_address(name))
    except ValueError:
        return False
