"""OpenAI's chat completions on any server. The SDK is imported when a provider is opened."""

from tg_flow.providers.openai import request
from tg_flow.providers.openai.azure import AzureOpenAi
from tg_flow.providers.openai.messages import have_text_alone
from tg_flow.providers.openai.presets import UNCERTAIN
from tg_flow.providers.openai.provider import ChatCompletions, OpenAi, OpenAiCompatible, OpenAiOptions
from tg_flow.providers.openai.request import is_bare
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
    "have_text_alone",
    "is_bare",
    "model_list",
    "request",
]
