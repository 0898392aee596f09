"""The HTTP side of a server: OTLP and records in, SQL and web pages out, and how it is doing.

Handlers read and check a request on the event loop and do the lake's work on threads, because it
waits for disks. A body is acknowledged when it is durable.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from lakebed import __version__
from lakebed.access.credentials import read_secret
from lakebed.access.keys import ANYBODY, Caller, Role
from lakebed.access.origins import require_own_site
from lakebed.admission import Admission, Share
from lakebed.catalog.acting import on_behalf_of
from lakebed.errors import (
    BadInput,
    BadPayload,
    Denied,
    NotAcceptable,
    NotStarted,
    Unauthenticated,
    Unresponsive,
    UnsupportedContent,
)
from lakebed.lake import Lake
from lakebed.model.signal import Signal
from lakebed.query.formats import CsvWriter, JsonWriter, NdjsonWriter
from lakebed.query.request import MOST_ROWS
from lakebed.query.result import Result
from lakebed.query.streaming import stream, stream_arrow
from lakebed.serve.answers import (
    JSON,
    PROTOBUF,
    answer_nowhere,
    answer_wrong_method,
    doubt,
    note_denial,
    refuse,
    refuse_otlp,
    stopping,
    tell_partial_success,
)
from lakebed.serve.bodies import MOST_BYTES, STALL_SECONDS, read_body, without_stalling
from lakebed.serve.flight.wishes import shorter
from lakebed.serve.health import Health
from lakebed.serve.meters import CONTENT_TYPE, Meters
from lakebed.serve.rows import RowsResponse
from lakebed.serve.workers import Workers
from lakebed.web.app import Hooks, Web

_ASIDE_THREADS = 4
"""For what is short and must be known however much there is to do: keys and meters."""
_MOST_IN_FLIGHT_BYTES = 512 << 20
_ARROW = "application/vnd.apache.arrow.stream"
_WRITERS: dict[str, Any] = {
    JSON: JsonWriter,
    "application/x-ndjson": NdjsonWriter,
    "text/csv": CsvWriter,
}
_OTLP_PREFIXES = ("/v1", "/ingestion/otlp/v1")
"""The second is where micromegas serves OTLP."""
_NOUGHT = re.compile(r"q=0(\.0*)?")
T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What a server takes at most."""

    open_to_all: bool = False
    """True for a server that needs no keys and is reached by any name."""
    most_body_bytes: int = MOST_BYTES
    most_in_flight_bytes: int = _MOST_IN_FLIGHT_BYTES
    query_seconds: float | None = 300.0
    stall_seconds: float = STALL_SECONDS
    """How long a request may say nothing."""


class HttpSide:
    """The routes over one lake."""

    def __init__(
        self,
        lake: Lake,
        settings: ServerSettings,
        meters: Meters,
        roles: Collection[str],
        budget: Admission,
        health: Health,
    ) -> None:
        self._roles = roles
        self._lake = lake
        self._settings = settings
        self._meters = meters
        self._budget = budget
        self._health = health
        self._workers = Workers("lakebed-http", health)
        self._aside = Workers("lakebed-http-aside", health, _ASIDE_THREADS)

    def make_app(self) -> Starlette:
        """The ASGI application."""
        routes = [
            Route("/livez", self._plain("livez", self._livez)),
            Route("/readyz", self._plain("readyz", self._readyz)),
            Route("/health", self._plain("readyz", self._readyz)),
            Route("/metrics", self._plain("metrics", self._metrics)),
            Route("/version", self._plain("version", self._version)),
        ]
        if "ingest" in self._roles:
            routes += [
                Route(f"{prefix}/{signal.value}", self._otlp(signal), methods=["POST"])
                for prefix in _OTLP_PREFIXES
                for signal in Signal
            ]
            insert = self._plain("tables", self._insert)
            routes.append(Route("/v1/tables/{database}/{table}", insert, methods=["POST"]))
        if "query" in self._roles:
            routes.append(Route("/v1/query", self._plain("query", self._query), methods=["POST"]))
        nowhere: Any = answer_nowhere
        if "web" in self._roles:
            hooks = Hooks(
                self._work,
                self._measured,
                refuse,
                self._needs_key,
                self._require_own_site,
                self._answer_rows,
            )
            web = Web(
                self._lake,
                hooks,
                open_to_all=self._settings.open_to_all,
                query_seconds=self._settings.query_seconds,
            )
            routes += web.make_routes()
            nowhere = web.answer_nowhere
        handlers = {404: nowhere, 405: answer_wrong_method}
        return Starlette(routes=routes, exception_handlers=handlers)

    def close(self) -> None:
        """Wait for what is being done."""
        self._workers.close()
        self._aside.close()

    # -- what every route shares --------------------------------------------------------------

    def _plain(self, route: str, handle: Handler) -> Handler:
        async def answer(request: Request) -> Response:
            return await self._measured(route, handle, refuse, request)

        return answer

    async def _measured(
        self,
        route: str,
        handle: Handler,
        refusal: Callable[[Exception], Response],
        request: Request,
    ) -> Response:
        begun = time.perf_counter()
        self._meters.waiting.inc()
        try:
            response = await handle(request)
        except ClientDisconnect:
            response = refusal(BadPayload("the sender went away before the body was complete"))
        except asyncio.CancelledError:
            if not self._health.draining:
                raise
            response = refusal(stopping())  # which it could not wait for any longer
        except Exception as error:  # noqa: BLE001  (answered, logged and counted)
            if isinstance(error, Unauthenticated | Denied):
                note_denial(error, route, getattr(request.state, "caller", None))
            response = refusal(error)
        finally:
            self._meters.waiting.dec()

        def count(status: int) -> None:
            self._meters.requests.labels(route, str(status)).inc()
            self._meters.seconds.labels(route).observe(time.perf_counter() - begun)

        if isinstance(response, RowsResponse):
            response.when_done = count
        else:
            count(response.status_code)
        return response

    async def _work(
        self, do: Callable[[], T], caller: Caller | None = None, *, once: bool = False
    ) -> T:
        """Do it on a thread; on behalf of whom, if it changes the lake, and whether it would be
        done twice if it were asked for again."""

        def work() -> T:
            with on_behalf_of(*([] if caller is None else [caller.asker])):
                return do()

        try:
            return await self._workers.do(work)
        except Unresponsive as error:
            raise doubt(error) if once else error from None

    def _answer_rows(
        self,
        result: Result,
        pieces: Iterator[bytes],
        media_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        return RowsResponse(result, pieces, self._workers, media_type, headers)

    async def _needs_key(self) -> bool:
        """Return True if callers must show a key: from the first one on, wherever it is made."""
        if self._settings.open_to_all:
            return False
        keys = self._lake.keys
        if keys.must_look_for_any():
            await self._aside.do(keys.has_any)
        return keys.had_any

    async def _let_in(self, request: Request, role: Role) -> Caller:
        """Who asks, if they may; before a byte of the body is read."""
        if not await self._needs_key():
            self._require_own_site(request)
            return ANYBODY
        secret = read_secret(request.headers)
        if secret is None:
            raise Unauthenticated(
                "a key is needed",
                hint="send: Authorization: Bearer KEY; or HTTP Basic with the key as password",
            )
        caller = await self._aside.do(lambda: self._lake.keys.check(secret))
        request.state.caller = caller
        caller.require(role)
        return caller

    def _let_in_again(self, request: Request, role: Role) -> None:
        """Raise unless whoever asks was let in before; keys cannot be looked up now."""
        if self._settings.open_to_all or not self._lake.keys.had_any:
            return
        caller = self._lake.keys.recall(read_secret(request.headers) or "")
        if caller is None:
            raise NotStarted("the key cannot be looked up")
        caller.require(role)

    def _require_own_site(self, request: Request) -> None:
        require_own_site(
            request.headers.get("host", ""),
            request.headers.get("origin"),
            any_name=self._settings.open_to_all,
        )

    async def _read(self, request: Request, share: Share) -> bytes:
        """The body; `Busy` if there is too much of others' in memory already."""
        if self._health.draining:
            raise stopping()
        return await read_body(
            without_stalling(request.stream(), self._settings.stall_seconds),
            request.headers.getlist("content-encoding"),
            request.headers.get("content-length"),
            self._settings.most_body_bytes,
            share.add,
        )

    # -- telemetry ----------------------------------------------------------------------------

    def _otlp(self, signal: Signal) -> Handler:
        async def answer(request: Request) -> Response:
            content = _content_type(request)
            refusal = lambda error: refuse_otlp(error, content)  # noqa: E731
            return await self._measured(
                signal.value, lambda req: self._land(req, signal, content), refusal, request
            )

        return answer

    async def _land(self, request: Request, signal: Signal, content: str) -> Response:
        caller = await self._let_in(request, Role.INGEST)
        if content not in (PROTOBUF, JSON):
            raise UnsupportedContent(
                f"requests of type {content or 'none'} are not taken",
                hint=f"send {PROTOBUF} or {JSON}",
            )
        kind = "json" if content == JSON else "protobuf"
        with self._budget.share() as share:
            body = await self._read(request, share)
            receipt = await self._work(
                lambda: self._lake.telemetry.land(signal, body, content=kind, partial=True), caller
            )
        self._meters.records.labels(signal.value).inc(receipt.records)
        self._meters.bytes.labels(signal.value).inc(len(body))
        if content == JSON:
            return JSONResponse(tell_partial_success(signal, receipt.rejected, receipt.reason))
        return Response(b"", media_type=content)

    # -- records and queries ------------------------------------------------------------------

    async def _insert(self, request: Request) -> Response:
        caller = await self._let_in(request, Role.INGEST)
        database, name = request.path_params["database"], request.path_params["table"]
        asked = _read_options(request, "on_error", "if_exists")
        with self._budget.share() as share:
            body = await self._read(request, share)
            done = await self._work(
                lambda: self._lake.tables.insert(
                    database,
                    name,
                    body,
                    on_error=asked.get("on_error", "refuse"),
                    if_exists=asked.get("if_exists", "replace"),
                    key=request.headers.get("idempotency-key"),
                ),
                caller,
                once="idempotency-key" not in request.headers,
            )
        self._meters.records.labels("records").inc(done.rows)
        self._meters.bytes.labels("records").inc(len(body))
        return JSONResponse(
            {"inserted": done.rows, "rejected": done.rejected, "repeated": done.repeated}
        )

    async def _query(self, request: Request) -> Response:
        caller = await self._let_in(request, Role.READ)
        _read_options(request)
        with self._budget.share() as share:
            asked = _read_query(await self._read(request, share), request)
        wanted = asked.pop("format")
        admin = caller.may(Role.ADMIN)
        timeout = shorter(asked.pop("timeout", None), self._settings.query_seconds)
        result: Result = await self._work(
            lambda: self._lake.queries.query(**asked, admin=admin, timeout=timeout), caller
        )
        made = stream_arrow(result) if wanted == _ARROW else stream(result, _WRITERS[wanted])
        return self._answer_rows(result, made, wanted)

    # -- how it is doing ----------------------------------------------------------------------

    async def _livez(self, _request: Request) -> Response:
        return PlainTextResponse("alive\n")

    async def _readyz(self, _request: Request) -> Response:
        """Catalog and store are asked, and a server that is stopping is not ready."""
        await self._health.require()
        return PlainTextResponse("ready\n")

    async def _metrics(self, request: Request) -> Response:
        try:
            await self._let_in(request, Role.READ)
            shown = await self._aside.do(self._meters.show)
        except Unresponsive:
            self._let_in_again(request, Role.READ)
            shown = self._meters.show_without_lake()
        return Response(shown, media_type=CONTENT_TYPE)

    async def _version(self, _request: Request) -> Response:
        return JSONResponse({"lakebed": __version__})


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _read_options(request: Request, *known: str) -> Mapping[str, str]:
    """What the address says beside the path. A name that means nothing here was meant to."""
    for name in request.query_params:
        if name not in known:
            raise BadInput(
                f"{name!r:.60} means nothing in this address",
                hint=f"it may have {' and '.join(known)}" if known else "say it in the body",
            )
    return request.query_params


def _choose_format(accepted: str) -> str:
    """The first of the formats that a caller takes in which rows can be given; what has a weight of
    nought is not taken."""
    asked = [each.lower().replace(" ", "").split(";") for each in accepted.split(",")]
    refused = {pattern for pattern, *rest in asked if any(map(_NOUGHT.fullmatch, rest))}
    known = [name for name in (*_WRITERS, _ARROW) if name not in refused]
    for pattern, *_ in asked:
        kind, _, rest = pattern.partition("/")
        for name in () if pattern in refused else known:
            if pattern in (name, "*/*") or (rest == "*" and name.startswith(f"{kind}/")):
                return name
    raise NotAcceptable(f"rows cannot be given as {accepted}", hint=f"accept {', '.join(known)}")


def _read_query(body: bytes, request: Request) -> dict[str, Any]:
    """A statement as JSON (``sql``, and ``parameters``, ``begin``, ``end``, ``as_of``, ``limit``,
    ``timeout``), or as the text itself."""
    wanted = _choose_format(request.headers.get("accept") or "*/*")
    if _content_type(request) != JSON:
        try:
            return {"sql": body.decode(), "format": wanted}
        except UnicodeDecodeError:
            raise BadPayload("the statement is no UTF-8 text") from None
    try:
        asked = msgspec.json.decode(body, type=_Asked)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadPayload(f"the query is not understood: {error}") from None
    given = msgspec.to_builtins(asked)
    return {name: value for name, value in given.items() if value is not None} | {"format": wanted}


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    sql: str
    parameters: list[Any] | None = None
    begin: str | None = None
    end: str | None = None
    as_of: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=0, le=MOST_ROWS)] | None = None
    timeout: Annotated[float, msgspec.Meta(ge=0)] | None = None
    stale: bool | None = None
    database: str | None = None
