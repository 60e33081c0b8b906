"""An agent service that thinks nothing: it says the records that a test wrote down, so that the doors can be tried."""

import asyncio
from collections.abc import AsyncGenerator

from typing_extensions import override

from tg_base.server import Service
from tg_schema import AGENT, AgentRequest, AgentResponse, TgError

THOUGHT, ACTION, OBSERVATION, AGAIN, FINAL = (
    "d/1/thought",
    "d/1/action/a",
    "d/1/observation/a",
    "d/2/thought",
    "d/answer",
)
DIALOG: tuple[AgentResponse, ...] = (
    AgentResponse("thought", "I must ", message_id=THOUGHT),
    AgentResponse("thought", "add.", True, message_id=THOUGHT),
    AgentResponse(
        "action", "sum", True, message_id=ACTION, tool="sum", arguments='{"numbers": [2, 3], "note": "n"}', call_id="a"
    ),
    AgentResponse("observation", "5", message_id=OBSERVATION, tool="sum", call_id="a"),
    AgentResponse("observation", ".0", True, message_id=OBSERVATION, tool="sum", call_id="a"),
    AgentResponse("thought", "Done.", True, message_id=AGAIN),
    AgentResponse("answer", "It is ", message_id=FINAL),
    AgentResponse("answer", "5.", message_id=FINAL),
    AgentResponse(
        "answer", "", True, True, message_id=FINAL, in_token=40, out_token=9, model="scripted", finish_reason="stop"
    ),
)
"""One dialog with every kind of message; its answer is "It is 5."."""


class ScriptedAgent(Service[AgentRequest, AgentResponse]):
    """Streams `dialog`, each record after `step` allows it; a request that does not stream gets the answer whole.

    Args:
        dialog: the records.
        error: raised after them.
    """

    spec = AGENT

    def __init__(self, dialog: tuple[AgentResponse, ...] = DIALOG, error: TgError | None = None) -> None:
        self.dialog = dialog
        self.error = error
        self.step: asyncio.Semaphore | None = None
        self.said = 0
        self.started = asyncio.Event()
        self.stopped = asyncio.Event()
        self.requests: list[AgentRequest] = []

    @override
    async def on_request(self, request: AgentRequest) -> AsyncGenerator[AgentResponse, None]:
        self.requests.append(request)
        self.started.set()
        records = self.dialog if request.streaming else AgentResponse.join(self.dialog)[-1:]
        try:
            for record in records:
                if self.step is not None:
                    await self.step.acquire()
                self.said += 1
                if request.streaming or self.error is None:
                    yield record
            if self.error is not None:
                raise self.error
        finally:
            self.stopped.set()
