"""Agent service -> pattern: the dialog of one request, with its limits, tools, usage and records."""

import asyncio
from collections.abc import AsyncGenerator

import msgspec

from tg_base.config import AgentLimits
from tg_flow.agent.core.answer_text import PIECE_BYTES
from tg_flow.agent.core.calling import Calling, Goal
from tg_flow.agent.core.messages import Messages
from tg_flow.agent.core.model import AgentModel
from tg_flow.agent.core.tool import AgentTool
from tg_flow.agent.core.toolbox import FIRST_STATE, Toolbox
from tg_flow.agent.core.turn import Turn, state_after, turns_of
from tg_schema import AgentRequest, AgentResponse, FinishReason, TextCompletionRequest, TextCompletionResponse, Usage
from tg_schema.answer_collector import MAX_ANSWER_BYTES
from tg_schema.errors import ContentFilter, Timeout, TooLarge


class Dialog:
    """The state of one request.

    Attributes:
        goal: the question.
        model: the agent's model, with the agent's prompts.
        calling: how the model calls tools.
        toolbox: all tools of the agent.
        messages: makes the records.
        usage: the tokens used so far.
        answered_by: the name of the first model that answered with one.
        earlier: the turns in the request's history.
        finish_reason: how the last answer of the model ended.
    """

    def __init__(
        self,
        request: AgentRequest,
        *,
        goal: Goal,
        model: AgentModel,
        calling: Calling,
        toolbox: Toolbox,
        limits: AgentLimits,
    ) -> None:
        self.goal = goal
        self.model = model
        self.calling = calling
        self.toolbox = toolbox
        self.messages = Messages()
        self.usage = Usage()
        self.answered_by: str | None = None
        self.earlier = turns_of(request.history or ())
        self._request = request
        self._turns = list(self.earlier)
        self._limits = limits
        self.finish_reason: FinishReason | None = None
        self._end = asyncio.get_running_loop().time() + limits.seconds

    @property
    def remaining(self) -> float:
        """Seconds until the time limit; always above 0, so that it is a valid timeout."""
        return max(self._end - asyncio.get_running_loop().time(), 0.001)

    @property
    def tools(self) -> dict[str, AgentTool]:
        """The tools that can be called now."""
        state = state_after(self._request.state or FIRST_STATE, self._turns, self.toolbox.next_states)
        return self.toolbox.available(self._request.group, state)

    def check_iterations(self, done: int) -> None:
        """Check the limit before the next iteration of a loop.

        Raises:
            TooLarge: the limit of iterations is reached.
        """
        if done >= self._limits.iterations:
            raise TooLarge(
                f"the agent did not come to an answer within {done} iterations; ask a smaller question, or raise "
                "limits.iterations"
            )

    def finish(self) -> AgentResponse:
        """The last record of the dialog, which ends the message of the answer."""
        return msgspec.structs.replace(
            self.messages.finish(),
            in_token=self.usage.in_token,
            out_token=self.usage.out_token,
            model=self.answered_by,
            finish_reason=self.finish_reason,
        )

    def keep(self, turn: Turn) -> None:
        """Add a finished turn."""
        self._turns.append(turn)

    async def ask(self, request: TextCompletionRequest) -> AsyncGenerator[TextCompletionResponse, None]:
        """Ask the model, within the dialog's limits, and count its usage.

        Raises:
            TooLarge: the dialog has used its tokens, or the answer exceeds the size limit of a record.
            Timeout: the dialog has used its time.
            ContentFilter: the provider refused to answer.
            TgError: the model failed.
        """
        self._check()
        self.finish_reason = None
        size = 0
        try:
            async with self.model.llm.stream(request, timeout=self.remaining, total=self.remaining) as records:
                async for record in records:
                    size += _size(record)
                    if size > MAX_ANSWER_BYTES:
                        raise TooLarge(f"the model's answer is larger than {MAX_ANSWER_BYTES} bytes; ask another model")
                    if (record.in_token, record.out_token) != (None, None):
                        self.usage += Usage(record.in_token, record.out_token)
                    self.answered_by = self.answered_by or record.model
                    self.finish_reason = record.finish_reason or self.finish_reason
                    yield record
        # If the dialog's own time has run out, raise its error instead, which names the limit.
        except Timeout:
            self._check()
            raise
        if self.finish_reason == "content_filter":
            raise ContentFilter("the provider refused to go on with this dialog; ask another question")

    def _check(self) -> None:
        limits = self._limits
        if asyncio.get_running_loop().time() >= self._end:
            raise Timeout(f"the agent did not come to an answer within {limits.seconds:g} s")
        used = (self.usage.in_token or 0) + (self.usage.out_token or 0)
        if limits.tokens is not None and used >= limits.tokens:
            raise TooLarge(
                f"the agent did not come to an answer within {limits.tokens} tokens; ask a smaller question, or raise "
                "limits.tokens"
            )


def _size(record: TextCompletionResponse) -> int:
    """Bytes of a record that are kept until the turn ends: its text and its calls."""
    calls = sum(len(call.arguments) + len(call.name or "") + len(call.id or "") + 1 for call in record.tool_calls)
    return len(record.response or "") + calls + PIECE_BYTES
