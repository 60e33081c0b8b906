"""The Python SDK of the gateway: asynchronous and blocking, over REST and over one WebSocket."""

from tg_client.agent_event import Action, AgentEvent, Answer, Observation, Thought
from tg_client.agent_stream import AgentStream
from tg_client.agent_trace import AgentTrace
from tg_client.flow import Flow
from tg_client.result import PromptResult, TextCompletionResult
from tg_client.sync_client import SyncAgentStream, SyncFlow, SyncSocket, SyncTgClient
from tg_client.tg_client import Socket, TgClient
from tg_schema.agent import AgentStep
from tg_schema.errors import TgError
from tg_schema.prompt import PromptResponse
from tg_schema.text_completion import Sampling, TextCompletionResponse

__all__ = [
    "Action",
    "AgentEvent",
    "AgentStep",
    "AgentStream",
    "AgentTrace",
    "Answer",
    "Flow",
    "Observation",
    "PromptResponse",
    "PromptResult",
    "Sampling",
    "Socket",
    "SyncAgentStream",
    "SyncFlow",
    "SyncSocket",
    "SyncTgClient",
    "TextCompletionResponse",
    "TextCompletionResult",
    "TgClient",
    "TgError",
    "Thought",
]
