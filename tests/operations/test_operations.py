"""Operations are declared once, and every door derives from the declaration."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec
import pytest

from lakebed.access.keys import ANYBODY, Caller, Role
from lakebed.errors import BadInput, Denied, Refused, Unsupported
from lakebed.lake import Lake
from lakebed.lifecycle.outcomes import Outcome
from lakebed.model.time import Instant
from lakebed.operations import actions
from lakebed.operations.operation import OPERATIONS, Connection, OperableLake, operation
from lakebed.operations.sql_functions import make_functions
from tests.parts.data import HOUR, T0, publish_hour, publish_rebuildable_hour, readings
from tests.query.functions import H0, H1, H2, live, one

READER = Caller("reader", frozenset({Role.READ}))


def retire_within(
    lake: OperableLake,
    view_set_name: str,
    begin_insert_time: Instant,
    end_insert_time: Instant,
    *,
    confirmed: Collection[str] = (),
) -> Outcome:
    """Retire the first partition inside a range. Only tests have this operation."""
    verbs = lake.retirement
    return verbs.retire(
        lambda: verbs.plan_by_range(view_set_name, begin_insert_time, end_insert_time).first(1),
        confirmed,
    )[0]


@pytest.fixture
def declared() -> Iterator[None]:
    """The operation `retire_within`, while a test runs."""
    operation(Outcome, changes=True, in_sql=True)(retire_within)
    yield
    del OPERATIONS["retire_within"]


@pytest.fixture
def hours(lake: Lake) -> Lake:
    """Three hours of readings, of which the last cannot be rebuilt."""
    lake.views.register(readings())
    publish_rebuildable_hour(lake, 0)
    publish_rebuildable_hour(lake, 1)
    publish_hour(lake, 2)
    return lake


def act(lake: Lake, caller: Caller, begin: int, **options: object) -> Outcome:
    arguments = {
        "view_set_name": "readings",
        "begin_insert_time": T0 + begin * HOUR,
        "end_insert_time": T0 + (begin + 1) * HOUR,
    }
    body = msgspec.msgpack.encode(arguments | options)
    data = b"".join(actions.act(lake, caller, "lakebed.retire_within", body))
    return msgspec.msgpack.decode(data, type=Outcome)


@pytest.mark.usefixtures("declared")
def test_new_operation_is_offered_at_every_door(hours: Lake) -> None:
    message = one(hours, f"retire_within('readings', {H0}, {H1})")
    assert message.startswith("SUCCESS: Retired partition readings/global ")
    assert act(hours, ANYBODY, 1).message.startswith("SUCCESS: Retired partition readings/global ")
    assert len(live(hours)) == 1
    summary = actions.list_actions(ANYBODY)["lakebed.retire_within"]
    assert summary == "Retire the first partition inside a range"


@pytest.mark.usefixtures("declared")
def test_new_operation_has_the_guard_at_every_door(hours: Lake) -> None:
    call = f"retire_within('readings', {H2}, {H2} + INTERVAL '1 hour'{{}})"
    with pytest.raises(Refused, match="cannot be rebuilt"):
        act(hours, ANYBODY, 2)
    with pytest.raises(Refused, match="cannot be rebuilt"):
        one(hours, call.format(""))
    assert len(live(hours)) == 3
    assert one(hours, call.format(", 'readings'")).startswith("SUCCESS: ")


@pytest.mark.usefixtures("declared")
def test_new_operation_needs_the_role_admin_at_every_door(hours: Lake) -> None:
    with pytest.raises(Denied, match="function retire_within needs the admin role"):
        act(hours, READER, 0)
    with pytest.raises(Denied, match="function retire_within needs the admin role"):
        hours.query(f"SELECT retire_within('readings', {H0}, {H1})", admin=False)
    assert "lakebed.retire_within" not in actions.list_actions(READER)
    assert len(live(hours)) == 3


def test_sql_functions_have_the_arguments_that_operations_declare() -> None:
    assert {function.name: function.usage for function in make_functions(lambda *_: [])} == {
        "retire_partition_by_metadata": "retire_partition_by_metadata(view_set, instance, begin, "
        "end[, schema_hash[, confirm]])",
        "retire_partition_by_file": "retire_partition_by_file(file_path[, confirm])",
        "restore_partition": "restore_partition(partition_id)",
        "retire_partitions": "retire_partitions(view_set, instance, begin, end[, confirm])",
        "materialize_partitions": "materialize_partitions(view_set, begin, end, delta_seconds)",
    }


def test_action_with_other_arguments_is_bad_input(hours: Lake) -> None:
    for body in (b"", b"\x80", msgspec.msgpack.encode({"partition_id": "x", "more": 1})):
        with pytest.raises(BadInput, match="the call is not understood"):
            list(actions.act(hours, ANYBODY, "lakebed.restore_partition", body))


def test_operation_that_needs_the_lake_is_no_action(hours: Lake) -> None:
    class Server:
        def act(self, action: str, body: bytes) -> bytes:
            raise AssertionError(action, body)

    assert isinstance(Server(), Connection)
    with pytest.raises(Unsupported, match="materialize_partitions needs the lake itself"):
        OPERATIONS["materialize_partitions"].send(Server(), "readings", T0, T0 + HOUR)
    assert "lakebed.materialize_partitions" not in actions.list_actions(ANYBODY)
    with pytest.raises(Unsupported, match="there is no action lakebed"):
        list(actions.act(hours, ANYBODY, "lakebed.materialize_partitions", b"\x80"))
