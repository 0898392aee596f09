"""JSON requests of which some records cannot be read: what is left, what is said of the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lakebed.decode.json_requests.nesting import MAX_LEVELS
from lakebed.decode.json_requests.trimming import Trimmed, trim
from lakebed.model.signal import Signal

GOOD: dict[str, Any] = {"body": {"stringValue": "kept"}}
BAD: dict[str, Any] = {"timeUnixNano": "x"}


def trimmed(*resources: Any) -> Trimmed:
    found = trim(Signal.LOGS, json.dumps({"resourceLogs": resources}).encode())
    assert found is not None
    return found


def records(*given: Any) -> dict[str, Any]:
    return {"scopeLogs": [{"logRecords": list(given)}]}


@pytest.mark.parametrize("beside", [{"logRecords": None}, {}, {"scope": None}, {"logRecords": []}])
def test_scopes_without_records_stand_beside_others(beside: dict[str, Any]) -> None:
    found = trimmed({"scopeLogs": [beside, {"logRecords": [BAD, GOOD]}, beside]})
    assert (found.valid, found.rejected) == (1, 1)
    (resource,) = json.loads(found.body)["resourceLogs"]
    assert [each.get("logRecords") or [] for each in resource["scopeLogs"]] == [[], [GOOD], []]


def test_the_reason_says_where_the_first_of_them_stood() -> None:
    scopes = [{"logRecords": [GOOD]}, {"logRecords": [GOOD, GOOD, BAD, {"body": 7}]}]
    found = trimmed(records(GOOD), {"scopeLogs": scopes}, records(BAD))
    assert found.rejected == 3
    assert found.reason == (
        "expected a whole number at resourceLogs[1].scopeLogs[1].logRecords[2].timeUnixNano, "
        'not "x"'
    )


def test_the_place_of_what_is_nested_too_deeply_is_told() -> None:
    deep: Any = {"stringValue": "x"}
    for _ in range(60):
        deep = {"arrayValue": {"values": [deep]}}
    place = "resourceLogs[0].scopeLogs[0].logRecords[1]"
    found = trimmed(records(GOOD, {"body": deep}))
    assert found.reason == f"values are nested more than 100 messages deep, at {place}"
    unknown: Any = 1
    for _ in range(MAX_LEVELS):
        unknown = [unknown]
    found = trimmed(records(GOOD, {"zz": unknown}))
    assert found.reason == f"the JSON is nested more than 200 levels deep, at {place}"


def test_metrics_are_left_out_whole() -> None:
    kept = {"name": "kept", "gauge": {"dataPoints": [{"asInt": "1"}]}}
    bad = {"name": "bad", "gauge": {"dataPoints": [{"asInt": "1"}, {"asInt": "x"}]}}
    body = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [kept, bad]}]}]}
    found = trim(Signal.METRICS, json.dumps(body).encode())
    assert found is not None
    assert (found.valid, found.rejected) == (1, 2)
    assert "at resourceMetrics[0].scopeMetrics[0].metrics[1].gauge.dataPoints[1].asInt" in (
        found.reason or ""
    )


def test_a_metric_with_a_number_that_nothing_holds_is_left_out() -> None:
    kept = b'{"name":"kept","gauge":{"dataPoints":[{"asInt":"1"}]}}'
    bad = b'{"name":"bad","gauge":{"dataPoints":[{"asDouble":1e999},{"asInt":"1"}]}}'
    metrics = b'{"resourceMetrics":[{"scopeMetrics":[{"metrics":[%b,%b]}]}]}' % (kept, bad)
    found = trim(Signal.METRICS, metrics)
    assert found is not None
    assert (found.valid, found.rejected) == (1, 2)
