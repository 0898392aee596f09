"""What every call on gRPC goes through: who calls is known before a message is received, messages
are received on the event loop, work is done on threads, and answers go out on the event loop again.
So callers who say nothing, or do not read, keep no thread from those who do.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from lakebed.access.credentials import parse_authorization
from lakebed.access.keys import ANYBODY, Caller, Role
from lakebed.admission import Admission, Share
from lakebed.errors import (
    BadPayload,
    Denied,
    LakebedError,
    PayloadTooLarge,
    TimedOut,
    Unauthenticated,
    Unavailable,
    Unresponsive,
)
from lakebed.serve.answers import RETRY_SECONDS, conceal, describe, doubt, find_status, note_denial
from lakebed.serve.health import Health
from lakebed.serve.receiving import Receiver
from lakebed.serve.workers import Workers
from lakebed.wire import error_codec

if TYPE_CHECKING:
    from lakebed.lake import Lake
    from lakebed.serve.meters import Meters

_CODES = {each.value[0]: each for each in grpc.StatusCode}
_KEY_THREADS = 4
_MOST_OPEN = 1000
_MOST_UNSENT = 2
_PAUSE = b"pause"
_log = logging.getLogger(__name__)
T = TypeVar("T")
Headers = tuple[tuple[str, str], ...]
Handlers = dict[str, grpc.GenericRpcHandler]
"""By the names of services."""


class Gatekeeper:
    """Who may call what, and how errors are told, for every service on gRPC."""

    def __init__(
        self, lake: Lake, meters: Meters, budget: Admission, health: Health, *, open_to_all: bool
    ) -> None:
        self._lake = lake
        self.health = health
        self.meters = meters
        self.budget = budget
        self._open_to_all = open_to_all
        self._threads = ThreadPoolExecutor(_KEY_THREADS, thread_name_prefix="lakebed-keys")

    async def identify(self, context: Any) -> Caller:
        """Return the caller; raise `Unauthenticated` without a key that is known."""
        if not await self._needs_key():
            return ANYBODY
        metadata = {key.lower(): value for key, value in context.invocation_metadata()}
        secret = parse_authorization(str(metadata.get("authorization", "")))
        if secret is None:
            raise Unauthenticated(
                "a key is needed",
                hint="set LAKEBED_KEY, or send: authorization: Bearer KEY; or a user name and the "
                "key as password",
            )
        return await self.health.attend(self._look_up(secret))

    async def _needs_key(self) -> bool:
        """Return True if callers must show a key: from the first one on, wherever it is made."""
        if self._open_to_all:
            return False
        keys = self._lake.keys
        if keys.must_look_for_any():
            await self.health.attend(self._do(keys.has_any))
        return keys.had_any

    async def _look_up(self, secret: str) -> Caller:
        return await self._do(lambda: self._lake.keys.check(secret))

    async def _do(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def refuse(
        self, context: Any, error: Exception, route: str, caller: Caller | None
    ) -> None:
        """End a call with the status of an error; never with a traceback."""
        _, code = find_status(error)
        self.meters.requests.labels(route, str(code)).inc()
        if not isinstance(error, LakebedError):
            _log.error("call failed: %s", error, exc_info=error)
        elif isinstance(error, Unauthenticated | Denied):
            note_denial(error, route, caller)
        elif isinstance(error, Unavailable):
            _log.error("call failed: %s", error)
        error = conceal(error)
        trailers: list[tuple[str, str | bytes]] = []
        retry = RETRY_SECONDS if isinstance(error, Unavailable) else None
        if retry is not None:
            trailers.append(("retry-after", str(retry)))
        if isinstance(error, LakebedError):
            told = error_codec.encode_error(error, code, retry_seconds=retry)
            trailers.append((error_codec.TRAILER, told))
        await context.abort(_CODES[code], error_codec.shorten(describe(error)), tuple(trailers))

    def run(self, do: Callable[[], None]) -> None:
        """Do something short, on a thread that is kept for that."""
        self._threads.submit(do)

    def close(self) -> None:
        """Nobody will come any more."""
        self._threads.shutdown(wait=False)


class Call:
    """One call while it is answered."""

    def __init__(self, caller: Caller, metadata: Any, share: Share) -> None:
        self.caller = caller
        self.metadata = metadata
        self.share = share
        self._stop: Callable[[], None] | None = None
        self._stopped = False

    def stop_with(self, stop: Callable[[], None]) -> None:
        """What stops the work if the caller goes; at once if that was before."""
        self._stop = stop
        if self._stopped:
            stop()

    def stop(self) -> None:
        """Nobody waits for this any more."""
        self._stopped = True
        if self._stop is not None:
            self._stop()


class Answering:
    """The calls of one port: so many open at once, and so many of them worked on."""

    def __init__(
        self, gate: Gatekeeper, receiver: Receiver, stall_seconds: float | None = None
    ) -> None:
        """``stall_seconds`` is how long a caller may read nothing of an answer."""
        self._gate = gate
        self._receiver = receiver
        self._stall_seconds = stall_seconds
        self._open = Admission(
            _MOST_OPEN, message="too many calls are open", hint="try again a little later"
        )
        self._workers = Workers("lakebed-grpc", gate.health)

    def unary(
        self, route: str, role: Role, answer: Callable[[bytes, Call], bytes]
    ) -> grpc.RpcMethodHandler:
        """A call of one message and one answer."""

        async def work(context: Any, call: Call) -> bytes:
            request = await self._receive_one(context, call)
            return await self._workers.do(lambda: answer(request, call))

        return grpc.stream_unary_rpc_method_handler(self._guarded(route, role, work))

    def stream(
        self,
        route: str,
        role: Role | None,
        answer: Callable[[bytes, Call], Iterator[bytes]],
        *,
        may_say_nothing: bool = False,
        headers: Callable[[Call], Headers] = lambda _call: (),
    ) -> grpc.RpcMethodHandler:
        """Return the handler of a call with one message, or possibly none, and many answers.

        ``headers`` are sent before the answers and again after them: clients differ in where they
        look. Without a role, any key will do.
        """

        async def work(context: Any, call: Call) -> None:
            if metadata := headers(call):
                await context.send_initial_metadata(metadata)
                context.set_trailing_metadata(metadata)
            if may_say_nothing:
                request = await self._receive(context, call) or b""
            else:
                request = await self._receive_one(context, call)
            await self._send(context, call, answer(request, call))

        return grpc.stream_stream_rpc_method_handler(self._guarded(route, role, work))

    def collect(
        self,
        route: str,
        begin: Callable[[bytes, Call], Callable[[list[bytes]], bytes]],
        most_bytes: int,
    ) -> grpc.RpcMethodHandler:
        """A call of many messages and one answer. The first says who may send the others; what is
        to be done with all of them is done when they are there."""

        async def work(context: Any, call: Call) -> None:
            first = await self._receive_one(context, call)
            finish = await self._workers.do(lambda: begin(first, call))
            messages = [first]
            while (message := await self._receive(context, call)) is not None:
                messages.append(message)
                if call.share.units > most_bytes:
                    raise PayloadTooLarge(
                        f"more than {most_bytes >> 20} MiB in one go", hint="put it in several"
                    )
            try:
                answer = await self._workers.do(lambda: finish(messages))
            except Unresponsive as error:
                raise doubt(error) from None
            await context.write(answer)

        return grpc.stream_stream_rpc_method_handler(self._guarded(route, None, work))

    def close(self) -> None:
        """Wait for what is being done."""
        self._workers.close()

    def _guarded(
        self, route: str, role: Role | None, work: Callable[[Any, Call], Awaitable[T]]
    ) -> Callable[[object, Any], Awaitable[T | None]]:
        """Let in who may, and tell of what goes wrong. Without a role, the work itself asks."""

        async def handle(_requests: object, context: Any) -> T | None:
            begun = time.perf_counter()
            caller = None
            try:
                with self._open.share() as open_call, self._gate.budget.share() as share:
                    open_call.add(1)
                    caller = await self._gate.identify(context)
                    if role is not None:
                        caller.require(role)
                    answered = await work(
                        context, Call(caller, context.invocation_metadata(), share)
                    )
            except Exception as error:  # noqa: BLE001  (told, logged and counted)
                await self._gate.refuse(context, _as_ours(error), route, caller)
                return None
            self._gate.meters.requests.labels(route, "0").inc()
            self._gate.meters.seconds.labels(route).observe(time.perf_counter() - begun)
            return answered

        return handle

    async def _receive(self, context: Any, call: Call) -> bytes | None:
        message = await self._receiver.receive(context.read)
        if message is grpc.aio.EOF:
            return None
        call.share.add(len(message))
        return bytes(message)

    async def _receive_one(self, context: Any, call: Call) -> bytes:
        message = await self._receive(context, call)
        if message is None:
            raise BadPayload("the call has no message")
        return message

    async def _send(self, context: Any, call: Call, messages: Iterator[bytes]) -> None:
        """Send messages as they are made. No thread is kept while the caller does not read."""
        making = _Making(messages, asyncio.get_running_loop())
        try:
            message = await self._gate.health.attend(self._make_first(making))
            while message is not None:
                if isinstance(message, BaseException):
                    raise message
                if message is _PAUSE:
                    await self._workers.start(making.go_on, patient=True)
                else:
                    await self._write(context, message, lambda: self._end(call, making))
                    making.sent += 1
                message = await making.made.get()
        except BaseException:
            self._end(call, making)
            raise

    async def _make_first(self, making: _Making) -> bytes | BaseException | None:
        await self._workers.start(making.go_on)
        return await making.made.get()

    async def _write(self, context: Any, message: bytes, end: Callable[[], None]) -> None:
        write = asyncio.ensure_future(context.write(message))
        try:
            done, _ = await asyncio.wait({write}, timeout=self._stall_seconds)
            if not done:
                end()
                await write  # before that, no status can follow
                raise TimedOut(
                    f"nothing was read for {self._stall_seconds:g} s",
                    hint="read faster, or ask for less",
                )
            write.result()
        finally:
            write.cancel()

    def _end(self, call: Call, making: _Making) -> None:
        """Stop what a call does, and let go of what it holds. All threads may be waiting for what
        is to be stopped, so others stop it."""
        self._gate.run(call.stop)
        self._workers.submit(making.close)


class _Making:
    """Messages while they are made, by a thread that goes on as long as they are sent."""

    def __init__(self, messages: Iterator[bytes], loop: asyncio.AbstractEventLoop) -> None:
        self._messages = messages
        self._loop = loop
        self._lock = threading.Lock()
        self._made = 0
        self._closed = False
        self.sent = 0
        self.made: asyncio.Queue[bytes | BaseException | None] = asyncio.Queue()
        """Messages, then None or an error; a pause if too many of them are not sent."""

    def go_on(self) -> None:
        """Make messages until the end, or until there is a pause."""
        while True:
            message: bytes | BaseException | None = None
            with self._lock:
                if not self._closed:
                    try:
                        message = next(self._messages, None)
                    except BaseException as error:  # noqa: BLE001  (raised where it is waited for)
                        message = error
            self._put(message)
            if not isinstance(message, bytes):
                return
            self._made += 1
            if self._made - self.sent > _MOST_UNSENT:
                self._put(_PAUSE)
                return

    def _put(self, message: bytes | BaseException | None) -> None:
        self._loop.call_soon_threadsafe(self.made.put_nowait, message)

    def close(self) -> None:
        """Make no more, once the one that is being made is."""
        with self._lock:
            self._closed = True
            if isinstance(self._messages, Generator):
                self._messages.close()


def _as_ours(error: Exception) -> Exception:
    return BadPayload("the message is not understood") if isinstance(error, DecodeError) else error
