"""Keys let in who should be, for what they should do, and nobody else; secrets are not kept."""

from __future__ import annotations

import threading

import pytest

from lakebed.access import keys as module
from lakebed.access.keys import Role
from lakebed.catalog import journal
from lakebed.errors import BadInput, NotFound, Unauthenticated
from lakebed.lake import Lake
from lakebed.opening import open_lake


def test_a_key_lets_its_holder_in_with_its_roles_only(lake: Lake) -> None:
    made = lake.keys.create("gateway", [Role.INGEST])
    caller = lake.keys.check(made.secret)
    assert caller.name == "gateway"
    assert caller.may(Role.INGEST)
    assert not caller.may(Role.READ)
    assert not caller.may(Role.ADMIN)
    everything = lake.keys.check(lake.keys.create("root", ["admin"]).secret)
    assert all(everything.may(role) for role in Role)


def test_the_secret_is_nowhere_in_the_catalog(lake: Lake) -> None:
    made = lake.keys.create("gateway", ["read"])
    (known,) = lake.keys.list_keys()
    assert made.secret.rpartition("_")[2] not in repr(known)
    assert known.digest not in made.secret.encode()
    with lake.catalog.read() as connection:
        entries = journal.list_entries(connection)
    assert any(each.operation == "create key" for each in entries)
    assert all(made.secret not in repr(each) for each in entries)


@pytest.mark.parametrize("what", ["", "Bearer x", "lakebed_000000000000_" + "a" * 43, "\x00"])
def test_what_is_no_key_is_refused(lake: Lake, what: str) -> None:
    lake.keys.create("gateway", ["read"])
    with pytest.raises(Unauthenticated):
        lake.keys.check(what)


def test_one_wrong_character_is_refused(lake: Lake) -> None:
    secret = lake.keys.create("gateway", ["read"]).secret
    other = "A" if secret[-1] != "A" else "B"
    with pytest.raises(Unauthenticated):
        lake.keys.check(secret[:-1] + other)
    lake.keys.check(secret)


def test_a_revoked_key_is_refused_and_stays_listed(lake: Lake) -> None:
    made = lake.keys.create("gateway", ["read"])
    lake.keys.check(made.secret)
    lake.keys.revoke(made.key.key_id)
    with pytest.raises(Unauthenticated):
        lake.keys.check(made.secret)
    (known,) = lake.keys.list_keys()
    assert known.revoked_at is not None
    assert lake.keys.has_any()  # so that a server does not let everybody in from now on
    with pytest.raises(NotFound):
        lake.keys.revoke(made.key.key_id)


def test_a_key_revoked_elsewhere_ends_soon(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    made = lake.keys.create("gateway", ["read"])
    with open_lake(lake.catalog.url) as other:
        other.keys.check(made.secret)
        lake.keys.revoke(made.key.key_id)
        other.keys.check(made.secret)  # it looks again only after some seconds
        monkeypatch.setattr(module, "_CACHE_SECONDS", 0.0)
        with pytest.raises(Unauthenticated):
            other.keys.check(made.secret)


def test_keys_that_are_made_up_are_not_remembered(lake: Lake) -> None:
    for number in range(3):
        with pytest.raises(Unauthenticated):
            lake.keys.check(f"lakebed_{number:012x}_{'x' * 43}")
    assert not lake.keys._cache


def test_the_last_use_is_visible(lake: Lake) -> None:
    made = lake.keys.create("gateway", ["read"])
    assert lake.keys.list_keys()[0].last_used_at is None
    lake.keys.check(made.secret)
    for thread in threading.enumerate():
        if thread.name == "lakebed-key-use":
            thread.join(300)
    used = lake.keys.list_keys()[0].last_used_at
    assert used is not None
    assert used >= made.key.created_at


def test_nobody_waits_for_the_note_of_a_use(lake: Lake) -> None:
    made = lake.keys.create("gateway", ["read"])
    entered, ended = threading.Event(), threading.Event()

    def write() -> None:
        with lake.catalog.write():
            entered.set()
            ended.wait(300)

    writer = threading.Thread(target=write)
    writer.start()
    assert entered.wait(300)
    assert lake.keys.check(made.secret).name == "gateway"  # while somebody else writes
    ended.set()
    writer.join()


@pytest.mark.parametrize("roles", [[], ["root"], "root", ["read", "write"]])
def test_roles_are_known_ones(lake: Lake, roles: list[str]) -> None:
    with pytest.raises(BadInput, match="roles"):
        lake.keys.create("gateway", roles)
    assert lake.keys.list_keys() == []


def test_names_have_no_control_characters(lake: Lake) -> None:
    with pytest.raises(BadInput, match="name"):
        lake.keys.create("two\nlines", ["read"])
