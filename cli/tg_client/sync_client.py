"""Blocking caller -> the asynchronous client: the same calls."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from typing_extensions import override

from tg_client.agent_dialog import AgentDialog, AgentStream
from tg_client.agent_event import AgentEvent
from tg_client.agent_trace import AgentTrace
from tg_client.flow import DEFAULT_TIMEOUT_SECONDS, Flow
from tg_client.loop_thread import LoopThread
from tg_client.record_stream import RecordStream
from tg_client.result import PromptResult, TextCompletionResult
from tg_client.tg_client import Socket, TgClient
from tg_client.transport import OnRetry
from tg_schema import (
    AgentStep,
    Message,
    PromptResponse,
    Sampling,
    ServiceSpec,
    TextCompletionResponse,
    Tool,
)
from tg_schema.live import ListedStream, LiveDocument
from tg_schema.served_model import ServedModel
from tg_schema.service_spec import Req, Resp
from tg_schema.text_completion import Reasoning
from tg_schema.usage_report import UsageResponse

S = TypeVar("S")
T = TypeVar("T")


class SyncAgentStream(Iterator[AgentEvent]):
    """`AgentStream` for blocking code."""

    def __init__(self, loop: LoopThread, stream: AgentStream) -> None:
        self._loop = loop
        self._stream = stream

    @property
    def trace(self) -> AgentTrace:
        """See `AgentStream.trace`."""
        return self._stream.trace

    @override
    def __iter__(self) -> Self:
        return self

    @override
    def __next__(self) -> AgentEvent:
        event = self._loop.run(_following(self._stream))
        if event is None:
            raise StopIteration
        return event


class _SyncStream(AbstractContextManager[T], Generic[S, T]):
    """An asynchronous context manager for blocking code; `show` converts what entering it returns."""

    def __init__(
        self, loop: LoopThread, entered: AbstractAsyncContextManager[S], show: Callable[[LoopThread, S], T]
    ) -> None:
        self._loop = loop
        self._entered = entered
        self._show = show

    @override
    def __enter__(self) -> T:
        return self._show(self._loop, self._loop.run(self._enter()))

    @override
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        # The block's own exception goes on in the caller's thread. The stream is closed with or without one.
        self._loop.finish(self._leave())

    async def _enter(self) -> S:
        return await self._entered.__aenter__()

    async def _leave(self) -> None:
        await self._entered.__aexit__(None, None, None)


class SyncRecordStream(_SyncStream[RecordStream[Resp], Iterator[Resp]], Generic[Resp]):
    """`RecordStream` for blocking code."""

    def __init__(self, loop: LoopThread, stream: RecordStream[Resp]) -> None:
        super().__init__(loop, stream, _iterate)
        self.position = stream.position


class SyncAgentDialog(_SyncStream[AgentStream, SyncAgentStream]):
    """`AgentDialog` for blocking code: enter it with `with`, or iterate it."""

    def __init__(self, loop: LoopThread, dialog: AgentDialog) -> None:
        super().__init__(loop, dialog, SyncAgentStream)
        self._dialog = dialog
        self.position = dialog.position

    @property
    def trace(self) -> AgentTrace:
        """See `AgentDialog.trace`."""
        return self._dialog.trace

    def __iter__(self) -> Iterator[AgentEvent]:
        with self as events:
            yield from events


class SyncFlow:
    """`Flow` for blocking code: streams are entered with `with`. Calls may come from any thread."""

    def __init__(self, loop: LoopThread, flow: Flow) -> None:
        self._loop = loop
        self._flow = flow

    def text_completion(
        self,
        system: str = "",
        prompt: str = "",
        *,
        messages: Sequence[Message] = (),
        tools: Sequence[Tool] = (),
        tool_choice: str | None = None,
        reasoning: Reasoning | None = None,
        model: str | None = None,
        sampling: Sampling | None = None,
        schema: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> TextCompletionResult:
        """See `Flow.text_completion`."""
        asked = self._flow.text_completion(
            system,
            prompt,
            messages=messages,
            tools=tools,
            tool_choice=tool_choice,
            reasoning=reasoning,
            model=model,
            sampling=sampling,
            schema=schema,
            timeout=timeout,
        )
        return self._loop.run(asked)

    def text_completion_stream(
        self,
        system: str = "",
        prompt: str = "",
        *,
        messages: Sequence[Message] = (),
        tools: Sequence[Tool] = (),
        tool_choice: str | None = None,
        reasoning: Reasoning | None = None,
        model: str | None = None,
        sampling: Sampling | None = None,
        schema: dict[str, Any] | None = None,
        timeout: float | None = None,
        keep: float | str | None = None,
    ) -> SyncRecordStream[TextCompletionResponse]:
        """See `Flow.text_completion_stream`."""
        stream = self._flow.text_completion_stream(
            system,
            prompt,
            messages=messages,
            tools=tools,
            tool_choice=tool_choice,
            reasoning=reasoning,
            model=model,
            sampling=sampling,
            schema=schema,
            timeout=timeout,
            keep=keep,
        )
        return SyncRecordStream(self._loop, stream)

    def prompt(
        self, template: str, variables: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> PromptResult:
        """See `Flow.prompt`."""
        return self._loop.run(self._flow.prompt(template, variables, timeout=timeout))

    def prompt_stream(
        self,
        template: str,
        variables: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        keep: float | str | None = None,
    ) -> SyncRecordStream[PromptResponse]:
        """See `Flow.prompt_stream`."""
        return SyncRecordStream(self._loop, self._flow.prompt_stream(template, variables, timeout=timeout, keep=keep))

    def agent(
        self,
        question: str,
        *,
        group: Sequence[str] | None = None,
        state: str | None = None,
        history: Sequence[AgentStep] = (),
        pattern: str | None = None,
        timeout: float | None = None,
    ) -> AgentTrace:
        """See `Flow.agent`."""
        asked = self._flow.agent(question, group=group, state=state, history=history, pattern=pattern, timeout=timeout)
        return self._loop.run(asked)

    def agent_stream(
        self,
        question: str,
        *,
        group: Sequence[str] | None = None,
        state: str | None = None,
        history: Sequence[AgentStep] = (),
        pattern: str | None = None,
        timeout: float | None = None,
        keep: float | str | None = None,
    ) -> SyncAgentDialog:
        """See `Flow.agent_stream`."""
        dialog = self._flow.agent_stream(
            question, group=group, state=state, history=history, pattern=pattern, timeout=timeout, keep=keep
        )
        return SyncAgentDialog(self._loop, dialog)


class SyncSocket:
    """One WebSocket for blocking code; any number of threads share it."""

    def __init__(self, loop: LoopThread, socket: Socket) -> None:
        self._loop = loop
        self._socket = socket

    def flow(self, flow: str | None = "default") -> SyncFlow:
        """See `Socket.flow`."""
        return SyncFlow(self._loop, self._socket.flow(flow))


class SyncTgClient:
    """`TgClient` for blocking code: enter it with `with`, or `close` it. Arguments and errors are the same.

    `on_retry` is called in a thread of the client.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        idle: float = 60.0,
        retries: int | None = None,
        on_retry: OnRetry | None = None,
    ) -> None:
        self._client = TgClient(url, token=token, timeout=timeout, idle=idle, retries=retries, on_retry=on_retry)
        self._loop = LoopThread()

    def __enter__(self) -> Self:
        self._loop.check_open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """See `TgClient.close`."""
        try:
            self._loop.finish(self._client.close())
        finally:
            self._loop.close()

    def flow(self, flow: str | None = "default") -> SyncFlow:
        """See `TgClient.flow`."""
        self._loop.check_open()
        return SyncFlow(self._loop, self._client.flow(flow))

    def attach(
        self,
        spec: ServiceSpec[Req, Resp],
        stream: str,
        after: int = -1,
        *,
        stops: bool = True,
        timeout: float | None = None,
    ) -> SyncRecordStream[Resp]:
        """See `TgClient.attach`."""
        return SyncRecordStream(self._loop, self._client.attach(spec, stream, after, stops=stops, timeout=timeout))

    def models(self, *, timeout: float | None = None) -> tuple[ServedModel, ...]:
        """See `TgClient.models`."""
        return self._loop.run(self._client.models(timeout=timeout))

    def usage(
        self,
        by: Sequence[str] = (),
        *,
        since: str = "7d",
        until: str | None = None,
        key: str | None = None,
        timeout: float | None = None,
    ) -> UsageResponse:
        """See `TgClient.usage`."""
        return self._loop.run(self._client.usage(by, since=since, until=until, key=key, timeout=timeout))

    def live(self, *, timeout: float | None = None) -> LiveDocument:
        """See `TgClient.live`."""
        return self._loop.run(self._client.live(timeout=timeout))

    def follow_live(self) -> AbstractContextManager[Iterator[LiveDocument]]:
        """See `TgClient.follow_live`."""
        return _SyncStream(self._loop, self._client.follow_live(), _iterate)

    def follow_streams(self, *, key: str | None = None) -> AbstractContextManager[Iterator[ListedStream]]:
        """See `TgClient.follow_streams`."""
        return _SyncStream(self._loop, self._client.follow_streams(key=key), _iterate)

    def follow_records(self, stream: str, *, key: str | None = None) -> AbstractContextManager[Iterator[bytes]]:
        """See `TgClient.follow_records`."""
        return _SyncStream(self._loop, self._client.follow_records(stream, key=key), _iterate)

    def stop_stream(self, stream: str) -> None:
        """See `TgClient.stop_stream`."""
        self._loop.run(self._client.stop_stream(stream))

    def socket(self) -> AbstractContextManager[SyncSocket]:
        """See `TgClient.socket`."""
        return _SyncStream(self._loop, self._client.socket(), SyncSocket)


def _iterate(loop: LoopThread, records: AsyncIterator[T]) -> Iterator[T]:
    while (record := loop.run(_following(records))) is not None:
        yield record


async def _following(records: AsyncIterator[T]) -> T | None:
    return await anext(records, None)
