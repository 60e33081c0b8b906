"""The Python SDK of the gateway: asynchronous and blocking, over REST and over one WebSocket."""

from tg_client.flow import Flow
from tg_client.result import PromptResult, TextCompletionResult
from tg_client.sync_client import SyncFlow, SyncSocket, SyncTgClient
from tg_client.tg_client import Socket, TgClient
from tg_schema.errors import TgError
from tg_schema.prompt import PromptResponse
from tg_schema.text_completion import Sampling, TextCompletionResponse

__all__ = [
    "Flow",
    "PromptResponse",
    "PromptResult",
    "Sampling",
    "Socket",
    "SyncFlow",
    "SyncSocket",
    "SyncTgClient",
    "TextCompletionResponse",
    "TextCompletionResult",
    "TgClient",
    "TgError",
]
