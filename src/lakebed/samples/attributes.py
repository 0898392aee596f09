"""Attributes of every AnyValue kind, and the resources and scopes that the samples come from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from lakebed.samples import words
from lakebed.samples.chance import Chance, Skewed
from lakebed.samples.words import Service

SCHEMA_URL = "https://opentelemetry.io/schemas/1.38.0"

_SYSTEMS = ("linux", "windows", "darwin")
_USERS = Skewed(words.USERS)
_METHODS = Skewed(words.METHODS)
_STATUSES = Skewed(words.STATUSES, 1.6)
_REGIONS = Skewed(words.REGIONS)
_AGENTS = Skewed(words.AGENTS)


def any_value(value: Any) -> AnyValue:
    """The AnyValue of a Python value; None gives the one that holds nothing."""
    match value:
        case None:
            return AnyValue()
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case str():
            return AnyValue(string_value=value)
        case bytes():
            return AnyValue(bytes_value=value)
        case list() | tuple():
            filled = AnyValue()
            filled.array_value.SetInParent()
            filled.array_value.values.extend(any_value(item) for item in value)
            return filled
        case dict():
            filled = AnyValue()
            filled.kvlist_value.SetInParent()
            filled.kvlist_value.values.extend(key_values(value.items()))
            return filled
    raise TypeError(f"no AnyValue holds a {type(value).__name__}")


def key_values(pairs: Iterable[tuple[str, Any]]) -> list[KeyValue]:
    return [KeyValue(key=key, value=any_value(value)) for key, value in pairs]


def put(attributes: Any, pairs: Iterable[tuple[str, str | int]]) -> None:
    """Adds texts and whole numbers in place, which is cheaper than copying made messages."""
    for key, value in pairs:
        added = attributes.add()
        added.key = key
        if type(value) is str:
            added.value.string_value = value
        else:
            added.value.int_value = value


def request_attributes(chance: Chance, operation: str) -> list[tuple[str, str | int]]:
    """Return the attributes of an instrumented request; skewed, a few more or less."""
    pairs: list[tuple[str, str | int]] = [
        ("http.request.method", _METHODS.pick(chance)),
        ("http.route", operation),
        ("http.response.status_code", _STATUSES.pick(chance)),
    ]
    if chance.happens(0.6):
        pairs.append(("enduser.id", _USERS.pick(chance)))
    if chance.happens(0.3):
        pairs.append(("cloud.region", _REGIONS.pick(chance)))
    if chance.happens(0.2):
        pairs.append(("user_agent.original", _AGENTS.pick(chance)))
    if chance.happens(0.05):
        pairs.append((f"app.experiment.{chance.below(200)}", chance.request_id()))
    return pairs


def pick_user(chance: Chance) -> str:
    return _USERS.pick(chance)


def pick_method(chance: Chance) -> str:
    return _METHODS.pick(chance)


def pick_status(chance: Chance) -> int:
    return _STATUSES.pick(chance)


def odd_attributes(chance: Chance) -> list[KeyValue]:
    """The attributes that few senders use: every kind of value, empty, nested, extreme."""
    pairs: list[tuple[str, Any]] = [
        ("app.sampled", chance.happens(0.5)),
        ("app.score", chance.between(-1, 1)),
        ("app.checksum", chance.random_bytes(chance.below(20))),
        ("app.tags", ["blau", "größer", chance.below(9)]),
        ("app.context", {"tenant": "t-1", "limits": {"cpu": 0.5, "gpus": []}, "on": True}),
        ("app.matrix", [[1, 2], [], [None, {"deep": [b"\x00\xff", -1]}]]),
        ("app.empty", ""),
        ("app.nothing", None),
        ("app.limit", chance.choice([2**63 - 1, -(2**63), 0, 1 << 53])),
        ("app.number", chance.choice([float("nan"), float("inf"), float("-inf"), -0.0, 1e300])),
        ("应用.名称", "значение"),
        ("", "a value without a name"),
        ("app.twice", 1),
        ("app.twice", "two"),
    ]
    chance.shuffle(pairs)
    return key_values(pairs[: 1 + chance.below(len(pairs))])


def make_resource(chance: Chance, service: Service, instance: int) -> Resource:
    """One running instance of a service."""
    host = f"{service.name.split(':')[0]}-{instance:02d}.node.example"
    pid = 1000 + instance
    pairs: list[tuple[str, Any]] = [("service.name", service.name)]
    if service.namespace is not None:
        pairs.append(("service.namespace", service.namespace))
    pairs += [
        ("service.version", chance.choice(service.versions)),
        ("service.instance.id", chance.random_bytes(16).hex()),
        ("deployment.environment.name", "production" if chance.happens(0.8) else "staging"),
        ("host.name", host),
        ("host.arch", "arm64" if chance.happens(0.3) else "amd64"),
        ("os.type", _SYSTEMS[0] if chance.happens(0.9) else chance.choice(_SYSTEMS)),
        ("process.pid", pid),
        ("process.command_args", [service.language, "-m", service.name, "--port", "8080"]),
        ("process.runtime.name", service.runtime[0]),
        ("process.runtime.version", service.runtime[1]),
        ("telemetry.sdk.name", "opentelemetry"),
        ("telemetry.sdk.language", service.language),
        ("telemetry.sdk.version", "1.45.1"),
    ]
    if service.owner:
        pairs.append(("process.owner", service.owner))
    if service.namespace is not None:
        pairs += [
            ("k8s.namespace.name", service.namespace),
            ("k8s.pod.name", f"{service.name}-{chance.random_bytes(5).hex()}"),
            ("k8s.node.name", f"node-{instance % 5}"),
            ("k8s.deployment.name", service.name),
            ("k8s.pod.labels", {"team": "blue", "canary": instance == 0}),
        ]
    if instance == 0:
        pairs += [("host.load", 0.75), ("host.mac", bytes(range(6))), ("host.note", None)]
    return Resource(attributes=key_values(pairs))


def make_scopes(service: Service) -> list[InstrumentationScope]:
    """The instrumentation libraries of a service; the first one has attributes."""
    scopes = [InstrumentationScope(name=name, version=version) for name, version in service.scopes]
    scopes[0].attributes.extend(key_values([("scope.kind", "auto"), ("scope.level", 2)]))
    return scopes
