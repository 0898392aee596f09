"""The routes of the pages. Each is a page's data with a template; ``.json`` after the path returns
the data itself. A key in the header, or a session that began with one, identifies the caller.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from lakebed import __version__
from lakebed.access.credentials import has_credentials
from lakebed.access.keys import ANYBODY, Caller, Role
from lakebed.errors import (
    BadInput,
    Conflict,
    Denied,
    LakebedError,
    NotFound,
    PayloadTooLarge,
    Refused,
    Unauthenticated,
)
from lakebed.lake import Lake
from lakebed.query.output.formats import CsvWriter, JsonWriter, ParquetWriter
from lakebed.query.output.streaming import stream
from lakebed.serve.guard import Guard
from lakebed.serve.http._answers import answer_refusal, no_address
from lakebed.serve.http._guard import Handler, answer, let_in
from lakebed.serve.http._rows import RowsResponse
from lakebed.serve.limits import ServerSettings
from lakebed.serve.refusals import Refusal, refuse
from lakebed.serve.workers import Workers
from lakebed.web import shown
from lakebed.web.administration import ADMIN_PAGES, FORM_ACTIONS
from lakebed.web.asking import keep_local, read_every
from lakebed.web.headers import HEADERS
from lakebed.web.notes import FormResult, Notes
from lakebed.web.pages import sql as sql_page
from lakebed.web.routes import (
    ADMINISTRATOR_MENU,
    MENU,
    PAGES,
    PERFETTO,
    FormAction,
    Page,
    PageRequest,
    SubmittedForm,
    read_again,
)
from lakebed.web.sessions import COOKIE, Sessions

_FOR_EVER = "public, max-age=31536000, immutable"
_MOST_FORM_BYTES = 64 << 10
_JSON = "application/json"
_DOWNLOADS: dict[str, tuple[str, Any]] = {
    "csv": ("text/csv", CsvWriter),
    "json": (_JSON, JsonWriter),
    "parquet": ("application/vnd.apache.parquet", ParquetWriter),
}


class Pages:
    """The pages over one lake."""

    def __init__(
        self, lake: Lake, settings: ServerSettings, guard: Guard, workers: Workers
    ) -> None:
        self._lake = lake
        self._guard = guard
        self._workers = workers
        self._seconds = settings.query_seconds
        self._sessions = Sessions()
        self._notes = Notes()

    def make_routes(self) -> list[Route]:
        """Return the routes of all pages."""
        routes = [
            Route("/", self._home),
            Route("/static/{name}", self._asset),
            Route("/sign-in", self._counted("sign-in", self._sign_in), methods=["GET", "POST"]),
            Route("/sign-out", self._counted("sign-out", self._sign_out), methods=["POST"]),
        ]
        routes.append(Route(f"{PERFETTO.path}.json", self._data(PERFETTO)))
        routes.append(Route("/sql/rows.{kind}", self._counted("download", self._download)))
        for form_action in FORM_ACTIONS:
            do = self._counted(form_action.name, self._do(form_action))
            routes.append(Route(form_action.path, do, methods=["POST"]))
        for page in (*PAGES, *ADMIN_PAGES):
            routes.append(Route(f"{page.path}.json", self._data(page)))
            routes.append(Route(page.path, self._shown(page)))
        return routes

    # -- pages --------------------------------------------------------------------------------

    def _shown(self, page: Page) -> Handler:
        async def show(request: Request) -> Response:
            try:
                caller = await self._let_in(request, page.role)
            except Unauthenticated:
                if has_credentials(request.headers):
                    raise
                return_address = shown.address(request.url.path, read_every(request))
                sign_in = shown.address("/sign-in", next=return_address)
                return RedirectResponse(sign_in, 303, headers=HEADERS)
            page_request = self._make_request(request, caller)
            status, refusal_parts = 200, None
            try:
                data = await self._workers.run(lambda: page.read(self._lake, page_request))
            except LakebedError as caught:
                error = caught
                data = await self._workers.run(
                    lambda: read_again(page, self._lake, page_request, error)
                )
                refusal = refuse(error)
                status = refusal.status
                if page.failed is None:  # its data has no field for the error
                    refusal_parts = refusal.parts
            return await self._workers.run(
                lambda: self._render(
                    request,
                    page.name,
                    status,
                    page=data,
                    caller=caller,
                    with_form=page.with_form,
                    refusal_parts=refusal_parts,
                )
            )

        return self._counted(page.name, show)

    def _data(self, page: Page) -> Handler:
        async def give(request: Request) -> Response:
            page_request = self._make_request(request, await self._let_in(request, page.role))
            data = await self._workers.run(lambda: page.read(self._lake, page_request))
            return Response(msgspec.json.encode(data), media_type=_JSON, headers=HEADERS)

        return partial(answer, self._guard, f"web/{page.name}", give, _refuse_data)

    def _make_request(self, request: Request, caller: Caller) -> PageRequest:
        return PageRequest(
            dict(request.query_params),
            dict(request.path_params),
            time.time_ns() // 1000,
            caller,
            self._seconds,
            read_every(request),
        )

    async def _download(self, request: Request) -> Response:
        """Return all rows of a statement, as they are computed."""
        caller = await self._let_in(request)
        page_request = self._make_request(request, caller)
        kind = request.path_params["kind"]
        if kind not in _DOWNLOADS:
            raise NotFound(f"rows cannot be had as {kind}", hint=", ".join(_DOWNLOADS))
        media_type, writer = _DOWNLOADS[kind]
        result = await self._workers.run(
            lambda: sql_page.run(self._lake, page_request.parameters, page_request.seconds)
        )
        headers = HEADERS | {"Content-Disposition": f'attachment; filename="rows.{kind}"'}
        pieces = stream(result, writer)
        return RowsResponse(result, pieces, self._workers, media_type, headers)

    def _do(self, form_action: FormAction) -> Handler:
        """Do the action of a form, and redirect to the page that shows its result."""

        async def do(request: Request) -> Response:
            caller = await self._let_in(request, Role.ADMIN)
            sent = SubmittedForm(await self._read_form(request), dict(request.path_params))
            try:
                do = lambda: form_action.do(self._lake, sent)  # noqa: E731
                done: FormResult = await self._workers.run(do, caller=caller, once=True)
            except (BadInput, NotFound, Conflict, Refused) as error:
                if form_action.page is None:
                    raise
                return await self._show_again(request, form_action.page, caller, sent, error)
            session_id = request.cookies[COOKIE]
            if done.secret and caller is ANYBODY and self._with_keys:
                # Else the first key would never be shown.
                self._sessions.sign_in(session_id, done.secret)
            self._notes.leave(session_id, done)
            return RedirectResponse(done.path, 303, headers=HEADERS)

        return do

    async def _show_again(
        self, request: Request, page: Page, caller: Caller, sent: SubmittedForm, error: LakebedError
    ) -> Response:
        """Return the page of a form as it is now, with the reason why nothing was done."""
        page_request = self._make_request(request, caller)
        try:
            data = await self._workers.run(lambda: page.read(self._lake, page_request))
        except NotFound:
            raise error from None
        refusal = refuse(error)
        return await self._workers.run(
            lambda: self._render(
                request,
                page.name,
                refusal.status,
                page=data,
                caller=caller,
                refusal_parts=refusal.parts,
                form_fields=sent.fields,
            )
        )

    def _counted(self, name: str, handle: Handler) -> Handler:
        return partial(answer, self._guard, f"web/{name}", handle, self._render_refusal)

    def _render_refusal(self, request: Request, refusal: Refusal) -> Response:
        page: dict[str, Any] = refusal.parts | {"status": refusal.status}
        if refusal.status == HTTPStatus.NOT_FOUND and "trace_id" in request.path_params:
            page["trace_id"] = request.path_params["trace_id"]
        caller = getattr(request.state, "caller", None) if self._with_keys else ANYBODY
        return self._render(request, "error", refusal.status, page=page, caller=caller)

    def _render(
        self,
        request: Request,
        name: str,
        status: int,
        *,
        page: Any,
        caller: Caller | None,
        with_form: bool = False,
        refusal_parts: Mapping[str, str] | None = None,
        form_fields: Mapping[str, str] | None = None,
    ) -> Response:
        """Return a page, with the result of a form: a note, or its refusal and what was typed."""
        session_id = request.cookies.get(COOKIE, "")
        is_new = with_form and not session_id
        if is_new:
            session_id = self._sessions.new_session_id()
        may_change = caller is not None and caller.may(Role.ADMIN)
        template = shown.make_environment().get_template(f"{name}.html")
        text = template.render(
            page=page,
            path=request.url.path,
            data_address=shown.address(f"{request.url.path}.json", read_every(request)),
            pages=ADMINISTRATOR_MENU if may_change else MENU,
            version=__version__,
            caller=caller if self._with_keys else None,
            may_change=may_change,
            token=self._sessions.make_token(session_id) if session_id else "",
            note=self._notes.take(session_id, request.url.path)
            if caller and not refusal_parts
            else None,
            told=refusal_parts,
            given=form_fields or {},
        )
        response = Response(text, status, media_type="text/html", headers=HEADERS)
        if is_new:
            self._set_cookie(request, response, session_id)
        return response

    async def answer_unknown_path(self, request: Request, _error: Exception) -> Response:
        """Answer requests for unknown addresses: a page for browsers, JSON for programs."""
        if "text/html" not in request.headers.get("accept", ""):
            return answer_refusal(request, refuse(no_address("pages are at /")))
        with suppress(LakebedError):  # strangers get the same page, without the caller
            await self._let_in(request)
        return self._render_refusal(
            request, refuse(NotFound(f"there is nothing at {request.url.path}"))
        )

    async def _home(self, _request: Request) -> Response:
        return RedirectResponse("/lake", 307)

    async def _asset(self, request: Request) -> Response:
        asset = shown.read_assets().get(request.path_params["name"])
        if asset is None:
            return self._render_refusal(request, refuse(NotFound("there is no such file")))
        kind, body = asset
        headers = HEADERS | {"Cache-Control": _FOR_EVER}
        return Response(body, media_type=kind, headers=headers)

    # -- callers ------------------------------------------------------------------------------

    @property
    def _with_keys(self) -> bool:
        """True if callers had to show a key at the last look; for what pages show."""
        return not self._guard.open_to_all and self._lake.keys.had_any

    async def _let_in(self, request: Request, role: Role = Role.READ) -> Caller:
        session_key = self._sessions.find_key(request.cookies.get(COOKIE, ""))
        hint = "sign in with one that may read"
        return await let_in(self._guard, request, role, session_key=session_key, hint=hint)

    async def _sign_in(self, request: Request) -> Response:
        """Return the sign-in form, or its result. A key that may not read is refused like no
        key."""
        if request.method == "GET" or not await self._guard.needs_key():
            return self._ask_for_key(request, request.query_params.get("next", ""), 200, None)
        form = await self._read_form(request)
        next_path = form.get("next", "")
        key = form.get("key", "").strip()
        try:
            caller = await self._guard.check_key(key)
            request.state.caller = caller
            caller.require(Role.READ)
        except (Unauthenticated, Denied) as error:
            return self._ask_for_key(request, next_path, 403, error)
        self._sessions.end(request.cookies.get(COOKIE, ""))
        response = RedirectResponse(keep_local(next_path), 303, headers=HEADERS)
        self._set_cookie(request, response, self._sessions.begin(key))
        return response

    def _ask_for_key(
        self, request: Request, next_path: str, status: int, error: Exception | None
    ) -> Response:
        session_id = request.cookies.get(COOKIE) or self._sessions.new_session_id()
        page = {
            "next": keep_local(next_path),
            "problem": None if error is None else str(error),
            "needed": self._with_keys,
        }
        text = (
            shown.make_environment()
            .get_template("sign-in.html")
            .render(
                page=page,
                path="/sign-in",
                data_address=None,
                pages=(),
                version=__version__,
                caller=None,
                token=self._sessions.make_token(session_id),
            )
        )
        response = Response(text, status, media_type="text/html", headers=HEADERS)
        if COOKIE not in request.cookies:
            self._set_cookie(request, response, session_id)
        return response

    async def _sign_out(self, request: Request) -> Response:
        await self._read_form(request)
        self._sessions.end(request.cookies.get(COOKIE, ""))
        response = RedirectResponse("/sign-in", 303, headers=HEADERS)
        response.delete_cookie(COOKIE)
        return response

    async def _read_form(self, request: Request) -> dict[str, str]:
        """Return a form's fields, if this browser got the form from us."""
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > _MOST_FORM_BYTES:
                raise PayloadTooLarge("a form of this size is not taken")
        form = dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))
        if not self._sessions.is_token(request.cookies.get(COOKIE, ""), form.get("token", "")):
            raise Denied("this form is too old, or not from here", hint="load the page again")
        return form

    def _set_cookie(self, request: Request, response: Response, session_id: str) -> None:
        secure = request.url.scheme == "https"
        response.set_cookie(COOKIE, session_id, httponly=True, samesite="strict", secure=secure)


def _refuse_data(request: Request, refusal: Refusal) -> Response:
    response = answer_refusal(request, refusal)
    response.headers.update(HEADERS)
    return response
