"""OpenAI's chat completions on any server. The SDK is imported when a provider is opened."""

from tg_flow.providers.openai import request, stream
from tg_flow.providers.openai.azure import AzureOpenAi
from tg_flow.providers.openai.presets import UNCERTAIN
from tg_flow.providers.openai.provider import ChatCompletions, OpenAi, OpenAiCompatible, OpenAiOptions
from tg_flow.providers.openai.request import continue_chat
from tg_flow.providers.openai.stream import model_list
from tg_flow.providers.openai.tgi import Tgi
from tg_flow.providers.openai.vllm import Vllm

__all__ = [
    "UNCERTAIN",
    "AzureOpenAi",
    "ChatCompletions",
    "OpenAi",
    "OpenAiCompatible",
    "OpenAiOptions",
    "Tgi",
    "Vllm",
    "continue_chat",
    "model_list",
    "request",
    "stream",
]
