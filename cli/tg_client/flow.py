"""Caller -> transport: typed calls to the services of one flow, the same over REST and WebSocket."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from tg_client.agent_dialog import AgentDialog
from tg_client.agent_trace import AgentTrace
from tg_client.record_stream import RecordStream
from tg_client.result import PromptResult, TextCompletionResult
from tg_client.transport import HttpTransport, Position, Retries, Transport, bytes_of
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

DEFAULT_TIMEOUT_SECONDS = 300.0
"""Default timeout for the next record, in seconds; a whole answer is one record."""


class Flow:
    """The services of one flow. Every call that fails raises `TgError`, and nothing else."""

    def __init__(
        self, door: Transport, http: HttpTransport, flow: str | None, timeout: float, retries: Retries
    ) -> None:
        self._door = door
        self._http = http
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
            prompt: what to answer; "" if the question is the last of `messages`.
            messages: the earlier turns, for example earlier questions, each with `result.turn` of its answer.
            tools: what the model may call.
            tool_choice: "auto", "none", "required", or the name of the tool that must be called; None = "auto".
            reasoning: how much the model should think.
            model: a model's name; None = the flow's.
            sampling: temperature, max_tokens, stop ...; None = the provider's defaults.
            schema: JSON schema that the answer must satisfy.
            timeout: seconds to wait for the whole answer; None = the client's.

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
        keep: float | str | None = None,
    ) -> RecordStream[TextCompletionResponse]:
        """The answer as it arrives: enter it, iterate it, leave it at any time to stop the model.

        The last record has `end_of_stream`, the usage of the whole stream and `finish_reason`. Arguments and errors as
        for `text_completion`, except that `timeout` is the time until the first record and between two; a truncated
        answer raises `IncompleteStream`. With `keep` (seconds, or "10m") the gateway keeps the answer for that time: if
        the connection is lost, the stream resumes over another one, up to the client's number of retries.
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
        asked = msgspec.structs.replace(request, streaming=True)
        return self.records(TEXT_COMPLETION, asked, timeout=timeout, keep=keep)

    async def prompt(
        self, template: str, variables: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> PromptResult:
        """The whole answer to a template of the configuration, filled with any JSON values. Raises `TgError`."""
        return PromptResult.of(await self._all(PROMPT, prompt_request(template, variables), timeout))

    def prompt_stream(
        self,
        template: str,
        variables: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        keep: float | str | None = None,
    ) -> RecordStream[PromptResponse]:
        """The answer to a template as it arrives, like `text_completion_stream`; a JSON answer comes in one record."""
        return self.records(PROMPT, prompt_request(template, variables, streaming=True), timeout=timeout, keep=keep)

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
        keep: float | str | None = None,
    ) -> AgentDialog:
        """The dialog as it happens: enter it, iterate its events, leave it at any time to stop model and tools.

        `async for event in flow.agent_stream(...)` works without entering it; `AgentDialog` says what a `break` does
        then. Its `trace` has the whole dialog at the end. Arguments and errors as for `agent`, and `keep` as for
        `text_completion_stream`.
        """
        groups = None if group is None else tuple(group)
        request = AgentRequest(question, state, groups, tuple(history) or None, streaming=True, pattern=pattern)
        return AgentDialog(self.records(AGENT, request, timeout=timeout, keep=keep))

    def records(
        self,
        spec: ServiceSpec[Req, Resp],
        request: Req,
        *,
        timeout: float | None = None,
        keep: float | str | None = None,
    ) -> RecordStream[Resp]:
        """Send a record to any service, and read the records of its answer. All other calls use this one."""
        # A dialog without streaming has one record. If that is an error, tools may have run already: do not repeat it.
        once = isinstance(request, AgentRequest) and not request.streaming
        return RecordStream(
            partial(self._door.stream, self._flow, spec, request),
            lambda: self._door.lost,
            spec,
            self._http,
            Position.of(keep),
            timeout=self._timeout if timeout is None else timeout,
            retries=Retries(0) if once else self._retries,
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
