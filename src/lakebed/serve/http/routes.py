"""The HTTP routes of a server: OTLP and records in, SQL and pages out, health and meters.

Handlers read and check a request on the event loop; threads do the lake's work, because it waits
for disks. A body is acknowledged when it is durable.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import partial
from typing import Annotated, Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from lakebed import __version__
from lakebed.access.keys import Role
from lakebed.admission import Share
from lakebed.errors import BadInput, BadPayload, NotAcceptable, Unresponsive, UnsupportedContent
from lakebed.lake import Lake
from lakebed.model.signal import Signal
from lakebed.query.output.formats import CsvWriter, JsonWriter, NdjsonWriter
from lakebed.query.output.streaming import stream, stream_arrow
from lakebed.query.request.request import MOST_ROWS
from lakebed.serve.guard import Guard
from lakebed.serve.http._answers import (
    JSON,
    PROTOBUF,
    answer_otlp_refusal,
    answer_refusal,
    answer_wrong_method,
    describe_partial_success,
    no_address,
    read_content_type,
)
from lakebed.serve.http._bodies import read_body, without_stalling
from lakebed.serve.http._guard import Handler, Render, answer, let_in
from lakebed.serve.http._pages import Pages
from lakebed.serve.http._rows import RowsResponse
from lakebed.serve.limits import ServerSettings, shorter
from lakebed.serve.meters import CONTENT_TYPE
from lakebed.serve.refusals import refuse, stopping
from lakebed.serve.workers import Workers

_ARROW = "application/vnd.apache.arrow.stream"
_WRITERS: dict[str, Any] = {
    JSON: JsonWriter,
    "application/x-ndjson": NdjsonWriter,
    "text/csv": CsvWriter,
}
_OTLP_PREFIXES = ("/v1", "/ingestion/otlp/v1")
"""micromegas serves OTLP under the second one."""
_ZERO_WEIGHT = re.compile(r"q=0(\.0*)?")


class HttpSide:
    """The routes over one lake."""

    def __init__(
        self, lake: Lake, settings: ServerSettings, roles: Collection[str], guard: Guard
    ) -> None:
        self._lake = lake
        self._settings = settings
        self._roles = roles
        self._guard = guard
        self._meters = guard.meters
        self.workers = Workers("lakebed-http", guard.health)

    def make_app(self) -> Starlette:
        """Return the ASGI application."""
        routes = [
            self._route("/livez", "livez", self._livez),
            self._route("/readyz", "readyz", self._readyz),
            self._route("/health", "readyz", self._readyz),
            self._route("/metrics", "metrics", self._metrics),
            self._route("/version", "version", self._version),
        ]
        if "ingest" in self._roles:
            routes += [
                self._route(
                    f"{prefix}/{signal.value}",
                    signal.value,
                    partial(self._land, signal),
                    "POST",
                    answer_otlp_refusal,
                )
                for prefix in _OTLP_PREFIXES
                for signal in Signal
            ]
            routes.append(
                self._route("/v1/tables/{database}/{table}", "tables", self._insert, "POST")
            )
        if "query" in self._roles:
            routes.append(self._route("/v1/query", "query", self._query, "POST"))
        answer_unknown_path: Any = _answer_nowhere
        if "web" in self._roles:
            pages = Pages(self._lake, self._settings, self._guard, self.workers)
            routes += pages.make_routes()
            answer_unknown_path = pages.answer_unknown_path
        handlers = {404: answer_unknown_path, 405: answer_wrong_method}
        return Starlette(routes=routes, exception_handlers=handlers)

    def close(self) -> None:
        """Wait for the threads to finish."""
        self.workers.close()

    def _route(
        self,
        path: str,
        name: str,
        handle: Handler,
        method: str = "GET",
        render: Render = answer_refusal,
    ) -> Route:
        endpoint = partial(answer, self._guard, name, handle, render)
        return Route(path, endpoint, methods=[method])

    async def _read(self, request: Request, share: Share) -> bytes:
        """Return the body; raise `Busy` if too much of other requests is in memory already."""
        if self._guard.health.draining:
            raise stopping()
        return await read_body(
            without_stalling(request.stream(), self._settings.stall_seconds),
            request.headers.getlist("content-encoding"),
            request.headers.get("content-length"),
            self._settings.most_body_bytes,
            share.add,
        )

    # -- telemetry ----------------------------------------------------------------------------

    async def _land(self, signal: Signal, request: Request) -> Response:
        caller = await let_in(self._guard, request, Role.INGEST)
        content = read_content_type(request)
        if content not in (PROTOBUF, JSON):
            raise UnsupportedContent(
                f"requests of type {content or 'none'} are not taken",
                hint=f"send {PROTOBUF} or {JSON}",
            )
        kind = "json" if content == JSON else "protobuf"
        with self._guard.body_bytes.share() as share:
            body = await self._read(request, share)
            receipt = await self.workers.run(
                lambda: self._lake.telemetry.land(signal, body, content=kind, partial=True),
                caller=caller,
            )
        self._meters.records.labels(signal.value).inc(receipt.records)
        self._meters.bytes.labels(signal.value).inc(len(body))
        if content == JSON:
            return JSONResponse(describe_partial_success(signal, receipt.rejected, receipt.reason))
        return Response(b"", media_type=content)

    # -- records and queries ------------------------------------------------------------------

    async def _insert(self, request: Request) -> Response:
        caller = await let_in(self._guard, request, Role.INGEST)
        database, name = request.path_params["database"], request.path_params["table"]
        options = _read_options(request, "on_error", "if_exists")
        with self._guard.body_bytes.share() as share:
            body = await self._read(request, share)
            result = await self.workers.run(
                lambda: self._lake.tables.insert(
                    database,
                    name,
                    body,
                    on_error=options.get("on_error", "refuse"),
                    if_exists=options.get("if_exists", "replace"),
                    key=request.headers.get("idempotency-key"),
                ),
                caller=caller,
                once="idempotency-key" not in request.headers,
            )
        self._meters.records.labels("records").inc(result.rows)
        self._meters.bytes.labels("records").inc(len(body))
        return JSONResponse(
            {"inserted": result.rows, "rejected": result.rejected, "repeated": result.repeated}
        )

    async def _query(self, request: Request) -> Response:
        caller = await let_in(self._guard, request, Role.READ)
        _read_options(request)
        with self._guard.body_bytes.share() as share:
            options = _read_query(await self._read(request, share), request)
        row_format = options.pop("format")
        admin = caller.may(Role.ADMIN)
        timeout = shorter(options.pop("timeout", None), self._settings.query_seconds)
        result = await self.workers.run(
            lambda: self._lake.queries.query(**options, admin=admin, timeout=timeout), caller=caller
        )
        if row_format == _ARROW:
            return RowsResponse(result, stream_arrow(result), self.workers, row_format)
        pieces = stream(result, _WRITERS[row_format])
        return RowsResponse(result, pieces, self.workers, row_format)

    # -- health and meters --------------------------------------------------------------------

    async def _livez(self, _request: Request) -> Response:
        return PlainTextResponse("alive\n")

    async def _readyz(self, _request: Request) -> Response:
        """Answer if the catalog and the store respond and the server is not stopping."""
        await self._guard.health.require()
        return PlainTextResponse("ready\n")

    async def _metrics(self, request: Request) -> Response:
        try:
            await let_in(self._guard, request, Role.READ)
            metrics = await self._guard.aside.run(self._meters.show)
        except Unresponsive:
            self._guard.identify_again(request.headers, Role.READ)
            metrics = self._meters.show_without_lake()
        return Response(metrics, media_type=CONTENT_TYPE)

    async def _version(self, _request: Request) -> Response:
        return JSONResponse({"lakebed": __version__})


async def _answer_nowhere(request: Request, _error: Exception) -> Response:
    error = no_address("what else is here depends on the server's roles")
    return answer_refusal(request, refuse(error))


def _read_options(request: Request, *names: str) -> Mapping[str, str]:
    """Return the query parameters of the address; raise `BadInput` for unknown ones."""
    for name in request.query_params:
        if name not in names:
            raise BadInput(
                f"{name!r:.60} means nothing in this address",
                hint=f"it may have {' and '.join(names)}" if names else "say it in the body",
            )
    return request.query_params


def _choose_format(accepted: str) -> str:
    """Return the first supported format of an Accept header; formats of weight 0 do not count."""
    patterns = [part.lower().replace(" ", "").split(";") for part in accepted.split(",")]
    refused = {pattern for pattern, *rest in patterns if any(map(_ZERO_WEIGHT.fullmatch, rest))}
    formats = [name for name in (*_WRITERS, _ARROW) if name not in refused]
    for pattern, *_ in patterns:
        kind, _, rest = pattern.partition("/")
        for name in () if pattern in refused else formats:
            if pattern in (name, "*/*") or (rest == "*" and name.startswith(f"{kind}/")):
                return name
    raise NotAcceptable(f"rows cannot be given as {accepted}", hint=f"accept {', '.join(formats)}")


def _read_query(body: bytes, request: Request) -> dict[str, Any]:
    """Return the options of a query, with its format, from a statement as text or as JSON."""
    row_format = _choose_format(request.headers.get("accept") or "*/*")
    if read_content_type(request) != JSON:
        try:
            return {"sql": body.decode(), "format": row_format}
        except UnicodeDecodeError:
            raise BadPayload("the statement is no UTF-8 text") from None
    try:
        query = msgspec.json.decode(body, type=_Query)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadPayload(f"the query is not understood: {error}") from None
    options = {"format": row_format} | msgspec.to_builtins(query)
    return {name: value for name, value in options.items() if value is not None}


class _Query(msgspec.Struct, forbid_unknown_fields=True):
    sql: str
    parameters: list[Any] | None = None
    begin: str | None = None
    end: str | None = None
    as_of: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=0, le=MOST_ROWS)] | None = None
    timeout: Annotated[float, msgspec.Meta(ge=0)] | None = None
    stale: bool | None = None
    database: str | None = None
