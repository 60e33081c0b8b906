"""Caller -> transport: typed calls of the services of one flow, the same over REST and WebSocket."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Any, Generic

import msgspec
from typing_extensions import override

from tg_client.agent_dialog import AgentDialog
from tg_client.agent_trace import AgentTrace
from tg_client.begun_once import BegunOnce
from tg_client.result import PromptResult, TextCompletionResult
from tg_client.transport import Deadline, Retries, Transport, bytes_of
from tg_schema import (
    AGENT,
    PROMPT,
    TEXT_COMPLETION,
    AgentRequest,
    AgentStep,
    Message,
    PromptRequest,
    PromptResponse,
    Sampling,
    ServiceSpec,
    TextCompletionRequest,
    TextCompletionResponse,
    Tool,
)
from tg_schema.answer_collector import AnswerCollector
from tg_schema.errors import BadRequest
from tg_schema.service_spec import Req, Resp
from tg_schema.text_completion import Reasoning


class RecordStream(AbstractAsyncContextManager[AsyncIterator[Resp]], AsyncIterator[Resp], Generic[Resp]):
    """One answer: enter it with `async with`, once. Leaving it stops what still runs.

    Args:
        door: the transport that is asked.
        ask: asks it.
        timeout: seconds to the first record, however often it asks, and between two.
        retries: how often it asks again.

    Raises (when it is entered):
        TgError: the gateway cannot be asked.
        BadRequest: it has begun before; every call is one stream.
    """

    def __init__(
        self,
        door: Transport,
        ask: Callable[[Deadline], AbstractAsyncContextManager[AsyncIterator[Resp]]],
        timeout: float,
        retries: Retries,
    ) -> None:
        self._door = door
        self._ask = ask
        self._timeout = timeout
        self._retries = retries
        self._once = BegunOnce("stream", "ask again")
        self._stack = AsyncExitStack()
        self._attempted = False

    @override
    async def __aenter__(self) -> AsyncIterator[Resp]:
        self._once.begin()
        self._clock = Deadline(self._timeout, self._door.idle)
        self._records = await self._stack.enter_async_context(self._ask(self._clock))
        return self

    @override
    def __anext__(self) -> Awaitable[Resp]:
        # After the first record, the reader gets the records without this layer.
        if self._attempted:
            return self._records.__anext__()
        return self._retries.repeat(self._clock, self._attempt, lambda: self._door.lost)

    async def _attempt(self) -> Resp:
        if self._attempted:
            await self._stack.aclose()
            self._records = await self._stack.enter_async_context(self._ask(self._clock))
        self._attempted = True
        return await anext(self._records)

    @override
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, tb)


DEFAULT_TIMEOUT_SECONDS = 300.0
"""Default of the seconds to wait for the next record; a whole answer is one record."""


class Flow:
    """The services of one flow. Every call that fails raises `TgError`, and nothing else."""

    def __init__(self, door: Transport, flow: str | None, timeout: float, retries: Retries) -> None:
        self._door = door
        self._retries = retries
        self._flow = flow
        self._timeout = timeout

    async def text_completion(
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
        """The whole answer, when it is complete.

        Args:
            system: how to answer.
            prompt: what to answer; "" if that is the last of `messages`.
            messages: the turns before it, for example earlier questions with `result.turn` of their answers.
            tools: what the model may call.
            tool_choice: "auto", "none", "required", or the name of the tool that must be called; None = "auto".
            reasoning: how much the model should think.
            model: a model's name; None = the flow's.
            sampling: temperature, max_tokens, stop ...; None = the provider's defaults.
            schema: JSON schema that the answer must satisfy.
            timeout: seconds until the whole answer must have come; None = the client's.

        Raises:
            TgError: one of the closed set, with `retryable` and `retry_after`.
        """
        request = completion_request(
            system,
            prompt,
            messages=messages,
            tools=tools,
            tool_choice=tool_choice,
            reasoning=reasoning,
            model=model,
            sampling=sampling,
            schema=schema,
        )
        return TextCompletionResult.of(await self._all(TEXT_COMPLETION, request, timeout))

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
    ) -> AbstractAsyncContextManager[AsyncIterator[TextCompletionResponse]]:
        """The answer as it comes: enter it, iterate it, leave it at any time to stop the model.

        The last record has `end_of_stream`, the usage of the whole stream and `finish_reason`. Arguments and errors as
        for `text_completion`, except that `timeout` is the time until the first record and between two; a truncated
        answer raises `IncompleteStream`.
        """
        request = completion_request(
            system,
            prompt,
            messages=messages,
            tools=tools,
            tool_choice=tool_choice,
            reasoning=reasoning,
            model=model,
            sampling=sampling,
            schema=schema,
        )
        return self.records(TEXT_COMPLETION, msgspec.structs.replace(request, streaming=True), timeout=timeout)

    async def prompt(
        self, template: str, variables: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> PromptResult:
        """The whole answer to a template of the configuration, filled with any JSON values. Raises `TgError`."""
        return PromptResult.of(await self._all(PROMPT, prompt_request(template, variables), timeout))

    def prompt_stream(
        self, template: str, variables: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[PromptResponse]]:
        """The answer to a template as it comes, like `text_completion_stream`; a JSON answer comes in one record."""
        return self.records(PROMPT, prompt_request(template, variables, streaming=True), timeout=timeout)

    async def agent(
        self,
        question: str,
        *,
        group: Sequence[str] | None = None,
        state: str | None = None,
        history: Sequence[AgentStep] = (),
        pattern: str | None = None,
        timeout: float | None = None,
    ) -> AgentTrace:
        """The whole dialog, when it has ended: `trace.answer`, its messages, its steps and its usage.

        Args:
            question: what to answer.
            group: the groups of the tools that may be used; None = the group "default".
            state: the initial state of the dialog; which tools can be called may depend on it.
            history: previous steps, for example of another trace.
            pattern: "react", "plan-then-execute", "supervisor" or another of the server's; None = the flow's default.
            timeout: seconds to the first record of the dialog, and between two; None = the client's.

        Raises:
            TgError: one of the closed set, with `retryable` and `retry_after`.
        """
        stream = self.agent_stream(
            question, group=group, state=state, history=history, pattern=pattern, timeout=timeout
        )
        # Reading is enough: the stream records its events.
        async with stream as events:
            async for _ in events:
                pass
        return stream.trace

    def agent_stream(
        self,
        question: str,
        *,
        group: Sequence[str] | None = None,
        state: str | None = None,
        history: Sequence[AgentStep] = (),
        pattern: str | None = None,
        timeout: float | None = None,
    ) -> AgentDialog:
        """The dialog as it happens: enter it, iterate its events, leave it at any time to stop model and tools.

        `async for event in flow.agent_stream(...)` works without entering it; `AgentDialog` says what a `break` does
        then. Its `trace` has the whole dialog at the end. Arguments and errors as for `agent`.
        """
        groups = None if group is None else tuple(group)
        request = AgentRequest(question, state, groups, tuple(history) or None, streaming=True, pattern=pattern)
        return AgentDialog(self.records(AGENT, request, timeout=timeout))

    def records(
        self, spec: ServiceSpec[Req, Resp], request: Req, *, timeout: float | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Resp]]:
        """Ask any service with a record, and read the records of its answer. All other calls use this one."""
        # The first record of a whole dialog is its last: its tools may have run when it fails.
        once = isinstance(request, AgentRequest) and not request.streaming
        return RecordStream(
            self._door,
            partial(self._door.stream, self._flow, spec, request),
            self._timeout if timeout is None else timeout,
            Retries(0) if once else self._retries,
        )

    async def _all(self, spec: ServiceSpec[Req, Resp], request: Req, timeout: float | None) -> Sequence[Resp]:
        """Raises: TooLarge, if the answer exceeds the limit of a whole answer."""
        answer = AnswerCollector(spec.response.join)
        async with self.records(spec, request, timeout=timeout) as records:
            async for record in records:
                answer.add(record)
        return answer.records()


def completion_request(
    system: str,
    prompt: str,
    *,
    messages: Sequence[Message] = (),
    tools: Sequence[Tool] = (),
    tool_choice: str | None = None,
    reasoning: Reasoning | None = None,
    model: str | None = None,
    sampling: Sampling | None = None,
    schema: dict[str, Any] | None = None,
) -> TextCompletionRequest:
    """The record for a completion; `streaming` is off."""
    return TextCompletionRequest(
        system,
        prompt,
        streaming=False,
        model=model,
        sampling=sampling,
        response_format=None if schema is None else "json",
        schema=schema,
        messages=tuple(messages),
        tools=tuple(tools),
        tool_choice=tool_choice,
        reasoning=reasoning,
    )


def prompt_request(
    template: str, variables: Mapping[str, Any] | None = None, *, streaming: bool = False
) -> PromptRequest:
    """The record for a template and its variables, each encoded as JSON text.

    Raises:
        BadRequest: a variable has a value that JSON cannot represent.
    """
    terms = {name: _json(name, value) for name, value in (variables or {}).items()}
    return PromptRequest(id=template, terms=terms, streaming=streaming)


def _json(name: str, value: object) -> str:
    try:
        return bytes_of(value).decode()
    except BadRequest:
        raise BadRequest(f"the variable {name} has a value that JSON cannot represent") from None
