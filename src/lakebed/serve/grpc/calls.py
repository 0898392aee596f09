"""Calls over gRPC: the caller is identified before a message is received, messages are received and
sent on the event loop, and threads do the work. So callers that send or read nothing keep no thread
from the others.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from functools import partial
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from lakebed.access.keys import Caller, Role
from lakebed.admission import Admission, Share
from lakebed.errors import BadPayload, LakebedError, PayloadTooLarge, TimedOut
from lakebed.serve.grpc._receiving import Receiver
from lakebed.serve.guard import Guard
from lakebed.serve.limits import MOST_BYTES, ServerSettings
from lakebed.serve.refusals import refuse
from lakebed.serve.workers import Workers
from lakebed.wire import error_codec

_CODES = {code.value[0]: code for code in grpc.StatusCode}
_MOST_OPEN = 1000
_KEY = "authorization"
_HOW_TO_SEND_KEYS = (
    "set LAKEBED_KEY, or send: authorization: Bearer KEY; or a user name and the key as password"
)
T = TypeVar("T")
Headers = tuple[tuple[str, str], ...]
Handlers = dict[str, grpc.GenericRpcHandler]
"""Handlers by the names of services."""


class Call:
    """One call while it is answered."""

    def __init__(self, caller: Caller, metadata: Any, share: Share) -> None:
        self.caller = caller
        self.metadata = metadata
        self.share = share
        self._stop: Callable[[], None] | None = None
        self._stopped = False

    def stop_with(self, stop: Callable[[], None]) -> None:
        """Stop the work like this if the caller goes; at once if it has gone already."""
        self._stop = stop
        if self._stopped:
            stop()

    def stop(self) -> None:
        """Stop the work, because its caller has gone."""
        self._stopped = True
        if self._stop is not None:
            self._stop()


class Calls:
    """The calls of one port. The numbers of open calls and of working threads are limited."""

    def __init__(self, guard: Guard, settings: ServerSettings) -> None:
        self._guard = guard
        self._receiver = Receiver(
            max(1, settings.most_in_flight_bytes // MOST_BYTES), settings.stall_seconds
        )
        self._unread_seconds = settings.query_seconds
        """The longest pause of a caller that reads an answer."""
        self._open = Admission(
            _MOST_OPEN, message="too many calls are open", hint="try again a little later"
        )
        self._workers = Workers("lakebed-grpc", guard.health)

    def unary(
        self, route: str, role: Role, answer: Callable[[bytes, Call], bytes]
    ) -> grpc.RpcMethodHandler:
        """Return the handler of a call with one message and one answer."""

        async def work(context: Any, call: Call) -> bytes:
            request = await self._receive_one(context, call)
            return await self._workers.run(lambda: answer(request, call), caller=call.caller)

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
        """Return the handler of a call with many messages and one answer. ``begin`` checks with the
        first message whether the caller may send the others, and returns the function that takes
        all of them."""

        async def work(context: Any, call: Call) -> None:
            first = await self._receive_one(context, call)
            finish = await self._workers.run(lambda: begin(first, call))
            messages = [first]
            while (message := await self._receive(context, call)) is not None:
                messages.append(message)
                if call.share.units > most_bytes:
                    raise PayloadTooLarge(
                        f"more than {most_bytes >> 20} MiB in one go", hint="put it in several"
                    )
            answer = await self._workers.run(
                lambda: finish(messages), caller=call.caller, once=True
            )
            await context.write(answer)

        return grpc.stream_stream_rpc_method_handler(self._guarded(route, None, work))

    def close(self) -> None:
        """Wait for the threads to finish."""
        self._workers.close()

    def _guarded(
        self, route: str, role: Role | None, work: Callable[[Any, Call], Awaitable[T]]
    ) -> Callable[[object, Any], Awaitable[T | None]]:
        """Return a handler that lets callers in and refuses errors. Without a role, the work itself
        checks the caller's roles."""

        async def handle(_requests: object, context: Any) -> T | None:
            started_at, caller = time.perf_counter(), None
            metadata = context.invocation_metadata()
            try:
                with self._open.share() as open_call, self._guard.body_bytes.share() as share:
                    open_call.add(1)
                    caller = await self._guard.identify(
                        {key.lower(): value for key, value in metadata if key.lower() == _KEY},
                        hint=_HOW_TO_SEND_KEYS,
                    )
                    if role is not None:
                        caller.require(role)
                    answer = await work(context, Call(caller, metadata, share))
            except DecodeError:
                await self._refuse(context, BadPayload("the message is not understood"), route)
                return None
            except Exception as error:  # noqa: BLE001  (answered, logged and counted)
                await self._refuse(context, error, route, caller)
                return None
            self._guard.count(route, 0, started_at)
            return answer

        return handle

    async def _refuse(
        self, context: Any, error: Exception, route: str, caller: Caller | None = None
    ) -> None:
        """End a call with the status of an error."""
        refusal = refuse(error, route, caller)
        self._guard.count(route, refusal.code, None)
        trailers: list[tuple[str, str | bytes]] = []
        retry = refusal.retry_seconds
        if retry is not None:
            trailers.append(("retry-after", str(retry)))
        if isinstance(refusal.error, LakebedError):
            detail = error_codec.encode_error(refusal.error, refusal.code, retry_seconds=retry)
            trailers.append((error_codec.TRAILER, detail))
        message = error_codec.shorten(refusal.text)
        await context.abort(_CODES[refusal.code], message, tuple(trailers))

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
        """Send messages; while one is written, a thread makes the next. No thread is busy while
        the caller does not read."""
        source = _Source(messages)

        def end() -> None:
            # All threads may wait for what is to be stopped, so others stop it.
            self._guard.aside.run_later(call.stop)
            self._workers.run_later(source.close)

        run = partial(self._workers.run, source.take, caller=call.caller)
        following = asyncio.ensure_future(run())
        try:
            while (message := await following) is not None:
                following = asyncio.ensure_future(run(patient=True))
                await self._write(context, message, end)
        except BaseException:
            following.cancel()
            following.add_done_callback(lambda task: task.cancelled() or task.exception())
            end()
            raise

    async def _write(self, context: Any, message: bytes, end: Callable[[], None]) -> None:
        write = asyncio.ensure_future(context.write(message))
        try:
            done, _ = await asyncio.wait({write}, timeout=self._unread_seconds)
            if not done:
                end()
                await write  # before that, no status can follow
                raise TimedOut(
                    f"nothing was read for {self._unread_seconds:g} s",
                    hint="read faster, or ask for less",
                )
            write.result()
        finally:
            write.cancel()


class _Source:
    """The messages of an answer, which one thread at a time makes or closes."""

    def __init__(self, messages: Iterator[bytes]) -> None:
        self._messages = messages
        self._lock = threading.Lock()

    def take(self) -> bytes | None:
        """Return the next message, or None after the last one."""
        with self._lock:
            return next(self._messages, None)

    def close(self) -> None:
        """Release what the messages are made of, once the one that is being made is."""
        with self._lock:
            if isinstance(self._messages, Generator):
                self._messages.close()
