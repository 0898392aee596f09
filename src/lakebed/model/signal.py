"""The kinds of telemetry that OTLP carries, and their names in OTLP. A new signal is a line in
`SPECS`, a decoder ``lakebed.decode.<group>``, and a view set that reads it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass


class Signal(enum.StrEnum):
    """The kinds of OTLP requests, spelled as in their paths: ``/v1/logs``."""

    LOGS = "logs"
    METRICS = "metrics"
    TRACES = "traces"

    @property
    def spec(self) -> SignalSpec:
        """The names of this signal in OTLP."""
        return SPECS[self]


@dataclass(frozen=True, slots=True)
class SignalSpec:
    """The names of one signal in OTLP's messages, whose request holds resources with scopes with
    records: ``ExportLogsServiceRequest.resource_logs.scope_logs.log_records``."""

    package: str
    group: str
    """What a resource or scope groups; also the name of the decoder's module."""
    records: str
    record: str
    """The message of one record."""
    counted: str
    """What a partial success counts."""
    required: Mapping[str, int | None]
    """Fields that no record of a sender lacks, with their length in bytes if it is fixed."""
    times: tuple[str, ...] = ("time_unix_nano",)
    second_time: str | None = None
    """The time of a record without the first one."""
    points_in: str | None = None
    """The choice whose messages hold the data points that carry time, instead of the record."""

    @property
    def service(self) -> str:
        """The full name of the gRPC service."""
        return f"opentelemetry.proto.collector.{self.package}.v1.{self.package.capitalize()}Service"

    @property
    def service_module(self) -> str:
        """The generated module with the request message."""
        return f"opentelemetry.proto.collector.{self.package}.v1.{self.package}_service_pb2"

    @property
    def request_message(self) -> str:
        package, _, service = self.service.rpartition(".")
        return f"{package}.Export{service}Request"

    @property
    def record_message(self) -> str:
        return f"opentelemetry.proto.{self.package}.v1.{self.record}"

    @property
    def resources(self) -> str:
        return f"resource_{self.group}"

    @property
    def scopes(self) -> str:
        return f"scope_{self.group}"


SPECS = {
    Signal.LOGS: SignalSpec(
        *("logs", "logs", "log_records", "LogRecord", "LogRecords"),
        required={},
        second_time="observed_time_unix_nano",
    ),
    Signal.METRICS: SignalSpec(
        *("metrics", "metrics", "metrics", "Metric", "DataPoints"),
        required={"name": None},
        points_in="data",
    ),
    Signal.TRACES: SignalSpec(
        *("trace", "spans", "spans", "Span", "Spans"),
        required={"trace_id": 16, "span_id": 8},
        times=("start_time_unix_nano", "end_time_unix_nano"),
    ),
}


def to_json_name(field: str) -> str:
    """Return a protobuf field's name in OTLP/JSON: ``log_records`` is ``logRecords``."""
    first, *following = field.split("_")
    return first + "".join(word.capitalize() for word in following)
