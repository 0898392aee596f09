"""Whether a request may come from a page of another site. A server that asks for no keys trusts
whoever reaches its port; a browser on the same machine reaches it on behalf of every site that is
open in it. Pure.
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from lakebed.errors import Denied

_HINT = "name the server as localhost or by its number, use keys, or say --without-keys"


def require_own_site(host: str, origin: str | None, *, any_name: bool) -> None:
    """Raise `Denied` for a request that a page of another site makes (browsers say which in
    ``Origin``), and, unless any name will do, for one to a name that somebody else may have pointed
    at this machine."""
    if origin is not None and origin.partition("://")[2].lower() != host.lower():
        raise Denied("this request comes from a page of another site", hint=_HINT)
    if not any_name and not _is_own(host):
        raise Denied(f"this server does not go by the name {host!r}", hint=_HINT)


def _is_own(host: str) -> bool:
    """Whether a name with or without a port can mean nothing but this machine, or is a number."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or name.endswith(".localhost") or bool(ip_address(name))
    except ValueError:
        return False
