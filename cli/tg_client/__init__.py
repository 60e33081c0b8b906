"""The Python SDK of the gateway: asynchronous and blocking, over REST and over one WebSocket."""

from tg_client.agent_dialog import AgentDialog, AgentStream
from tg_client.agent_event import Action, AgentEvent, Answer, Observation, Thought
from tg_client.agent_trace import AgentTrace
from tg_client.flow import Flow
from tg_client.record_stream import RecordStream
from tg_client.result import Choice, PromptResult, TextCompletionResult
from tg_client.sync_client import (
    SyncAgentDialog,
    SyncAgentStream,
    SyncFlow,
    SyncRecordStream,
    SyncSocket,
    SyncTgClient,
)
from tg_client.tg_client import Socket, TgClient
from tg_client.transport import Position
from tg_schema import AgentStep, PromptResponse, Sampling, TextCompletionResponse, TgError

__all__ = [
    "Action", "AgentDialog", "AgentEvent", "AgentStep", "AgentStream", "AgentTrace", "Answer", "Choice", "Flow",
    "Observation", "Position", "PromptResponse", "PromptResult", "RecordStream", "Sampling", "Socket",
    "SyncAgentDialog", "SyncAgentStream", "SyncFlow", "SyncRecordStream", "SyncSocket", "SyncTgClient",
    "TextCompletionResponse", "TextCompletionResult", "TgClient", "TgError", "Thought",
]  # fmt: skip
