"""Bearer keys with roles. A key is shown once, when it is created; the lake stores its digest. Its
form is ``lakebed_<id>_<secret>``: the id finds the row, and the digest of the 256-bit secret is
compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import math
import re
import secrets
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum

from lakebed.catalog import clock, journal
from lakebed.catalog.catalog import Catalog
from lakebed.catalog.records import keys
from lakebed.catalog.records.keys import Key
from lakebed.errors import BadInput, Denied, LakebedError, NotFound, Unauthenticated
from lakebed.model.arguments import checked_methods

_KEY_PATTERN = re.compile(r"lakebed_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,100}")
_CACHE_SECONDS = 5.0
_USE_SECONDS = 60.0
_log = logging.getLogger(__name__)


class Role(StrEnum):
    """A permission of a caller."""

    INGEST = "ingest"
    """Send telemetry and records; read nothing."""
    READ = "read"
    """Query; change nothing."""
    ADMIN = "admin"
    """Everything, the functions that change the lake among it."""


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated client."""

    name: str
    roles: frozenset[Role]
    has_key: bool = True

    @property
    def asker(self) -> str:
        """The name of the caller in the journal and the log."""
        return f"key:{self.name}" if self.has_key else self.name

    def may(self, role: Role) -> bool:
        """Return True if the caller has the role or is an admin."""
        return role in self.roles or Role.ADMIN in self.roles

    def require(self, role: Role) -> None:
        """Raise `Denied` unless the caller has the role or is an admin."""
        if not self.may(role):
            raise Denied(f"the key of {self.name} is not for this", hint=f"it needs {role}")


ANYBODY = Caller("anybody", frozenset({Role.ADMIN}), has_key=False)
"""The caller of a server that requires no keys."""


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just created, with its secret, which cannot be shown again."""

    key: Key
    secret: str


@checked_methods
class Keys:
    """The keys of one lake. Safe to use from several threads."""

    def __init__(self, catalog: Catalog, now: Callable[[], float] = time.monotonic) -> None:
        self._catalog = catalog
        self._now = now
        self._cache: dict[str, tuple[float, Key | None]] = {}
        self._looked_for_any_at = -math.inf
        self._had_any = False
        self._used: dict[str, float] = {}
        self._lock = threading.Lock()
        self._noting = threading.Lock()

    def create(self, name: str, roles: Collection[Role | str]) -> NewKey:
        """Create a key. Its secret is in the result and stored nowhere."""
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise BadInput(f"{name!r} is no name for a key", hint="use 1 to 100 visible characters")
        role_names = _read_roles(roles)
        key_id = secrets.token_hex(6)
        secret = f"lakebed_{key_id}_{secrets.token_urlsafe(32)}"
        with self._catalog.write() as transaction:
            key = Key(key_id, name, role_names, _digest(secret), transaction.tick)
            keys.insert(transaction.connection, key)
            detail = {"key_id": key_id, "name": name, "roles": list(role_names)}
            journal.append(transaction, [journal.Entry("create key", detail=detail)])
        self._had_any = True
        return NewKey(key, secret)

    def list_keys(self) -> list[Key]:
        """Return all keys, including revoked ones, the oldest first."""
        with self._catalog.read() as connection:
            return keys.list_keys(connection)

    def has_any(self) -> bool:
        """Return True if a key was ever made, also if all are revoked: revoking the last key does
        not open a server to everybody."""
        looked_at = self._now()
        if not self._had_any:
            with self._catalog.glance() as connection:
                if keys.has_any(connection):
                    self._had_any = True
        self._looked_for_any_at = looked_at
        return self._had_any

    @property
    def had_any(self) -> bool:
        """Return the last result of `has_any`, of any age."""
        return self._had_any

    def must_look_for_any(self) -> bool:
        """Return True if another process may have created the first key since the last lookup."""
        return not self._had_any and self._now() - self._looked_for_any_at >= _CACHE_SECONDS

    def revoke(self, key_id: str) -> Key:
        """Revoke a key. Servers notice within seconds."""
        with self._catalog.write() as transaction:
            key = keys.find(transaction.connection, key_id)
            if key is None or not keys.revoke(transaction.connection, key_id, transaction.tick):
                raise NotFound(
                    f"no key in force has the id {key_id!r}",
                    hint="see what there is with: lakebed keys list",
                )
            detail = {"key_id": key_id, "name": key.name}
            journal.append(transaction, [journal.Entry("revoke key", detail=detail)])
        with self._lock:
            self._cache.pop(key_id, None)
        return key

    def check(self, secret: str) -> Caller:
        """Return the caller of this key; raise `Unauthenticated` if the key is unknown or revoked.
        Keys are looked up again after a few seconds."""
        match = _KEY_PATTERN.fullmatch(secret)
        key = self._look_up(match[1]) if match else None
        if not _matches_secret(key, secret) or key is None:
            _log.warning("a key was refused", extra={"key_id": match[1] if match else None})
            raise Unauthenticated("the key is not known, or was revoked")
        self._note_use(key.key_id)
        return _name_caller(key)

    def recall(self, secret: str) -> Caller | None:
        """Return the caller of this key from the cache, of any age, or None. For requests that must
        be answered while the catalog does not respond."""
        match = _KEY_PATTERN.fullmatch(secret)
        with self._lock:
            _, key = self._cache.get(match[1] if match else "", (0.0, None))
        return _name_caller(key) if _matches_secret(key, secret) and key is not None else None

    def _look_up(self, key_id: str) -> Key | None:
        now = self._now()
        with self._lock:
            cached_at, cached_key = self._cache.get(key_id, (-_CACHE_SECONDS, None))
        if now - cached_at < _CACHE_SECONDS and cached_key is not None:
            return cached_key
        with self._catalog.glance() as connection:
            key = keys.find(connection, key_id)
        if key is not None:  # unknown ids are not cached
            with self._lock:
                self._cache[key_id] = (now, key)
        return key

    def _note_use(self, key_id: str) -> None:
        """Record the use of a key once a minute, on a thread of its own, so that no caller waits
        for the catalog's lock. A read-only lake records nothing."""
        now = self._now()
        with self._lock:
            if (
                self._catalog.read_only
                or now - self._used.get(key_id, -_USE_SECONDS) < _USE_SECONDS
            ):
                return
            self._used[key_id] = now
        noting = threading.Thread(
            target=self._write_use, args=(key_id,), name="lakebed-key-use", daemon=True
        )
        noting.start()

    def _write_use(self, key_id: str) -> None:
        """Record a use, unless another thread is recording one; the next use is recorded then."""
        noted = False
        if self._noting.acquire(blocking=False):
            try:
                with self._catalog.beat() as connection:
                    keys.note_use(connection, key_id, clock.upcoming(connection))
                noted = True
            except LakebedError as error:
                _log.warning("the use of a key was not noted: %s", error)
            finally:
                self._noting.release()
        if not noted:
            with self._lock:
                self._used.pop(key_id, None)


def _read_roles(roles: Collection[Role | str]) -> tuple[str, ...]:
    known_roles = [role.value for role in Role]
    if isinstance(roles, str) or not roles or any(str(role) not in known_roles for role in roles):
        raise BadInput(f"{roles!r} are no roles", hint=f"some of {', '.join(known_roles)}")
    return tuple(name for name in known_roles if name in {str(role) for role in roles})


def _matches_secret(key: Key | None, secret: str) -> bool:
    """Return True if a secret matches a key that is not revoked. Takes as long for unknown keys."""
    digest = _digest(secret)
    same = hmac.compare_digest(digest, key.digest if key else bytes(len(digest)))
    return key is not None and same and key.revoked_at is None


def _name_caller(key: Key) -> Caller:
    return Caller(key.name, frozenset(Role(role) for role in key.roles))


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
