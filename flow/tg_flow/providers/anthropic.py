"""TextCompletionRequest -> Anthropic's own API -> LlmChunks."""

import asyncio
from importlib import import_module
from typing import ClassVar, Self

from typing_extensions import override

from tg_base.credentials import key_from
from tg_base.llm_service import ProviderOptions
from tg_base.wires.anthropic_answer import model_list, refusal
from tg_base.wires.claude import Claude, ClaudeOptions
from tg_base.wires.sdk_response import whole_body
from tg_schema import ModelInfo
from tg_schema.errors import Internal

_PREDECESSORS = {"ANTHROPIC_API_KEY": ("CLAUDE_KEY",)}


class AnthropicOptions(ClaudeOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the configuration may say of Anthropic.

    Attributes:
        key_variable: the environment variable that holds the key; "" for a server that needs none. Where
            `ANTHROPIC_API_KEY` is not set, the predecessor's `CLAUDE_KEY` is taken.
    """

    base_url: str | None = "https://api.anthropic.com"
    key_variable: str = "ANTHROPIC_API_KEY"


class Anthropic(Claude):
    """Anthropic's Messages API, through its asynchronous SDK."""

    Options: ClassVar[type[ProviderOptions]] = AnthropicOptions

    @classmethod
    @override
    async def open(cls, model: str, options: ProviderOptions) -> Self:
        if not isinstance(options, AnthropicOptions):
            raise Internal("this provider was opened with the options of another one")
        key = key_from(options.key_variable, *_PREDECESSORS.get(options.key_variable, ()))
        module = await asyncio.to_thread(import_module, "tg_flow.providers.anthropic_connection")
        return cls(model, options, await asyncio.to_thread(module.connection, options.base_url, key))

    @override
    async def models(self) -> tuple[ModelInfo, ...]:
        connection = self._connection
        return model_list(await whole_body(connection.models(), connection.failures, refusal, self.clocks.first_token))
