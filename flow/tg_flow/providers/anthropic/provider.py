"""TextCompletionRequest -> Anthropic's own API -> LlmChunks."""

import asyncio
from functools import partial
from importlib import import_module
from typing import ClassVar, Self

from typing_extensions import override

from tg_base.llm import KeyedConnection, ProviderOptions, choose_key
from tg_base.llm.anthropic import Claude, ClaudeOptions, error_detail, model_list
from tg_base.llm.http import read_whole_body
from tg_schema import ModelInfo
from tg_schema.errors import Internal


class AnthropicOptions(ClaudeOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the configuration may say of Anthropic.

    Attributes:
        base_url_variables: the SDK's own.
        key_file: a file that holds the key, read again for every request.
        key_variable: the environment variable that holds the key; "" for a server that needs none.
        key_variables: where neither is said: the SDK's own, and TrustGraph's.
    """

    base_url_variables: tuple[str, ...] = ("ANTHROPIC_BASE_URL",)
    default_base_url: str | None = "https://api.anthropic.com"
    key_file: str | None = None
    key_variable: str | None = None
    key_variables: tuple[str, ...] = ("ANTHROPIC_API_KEY", "CLAUDE_KEY")


class Anthropic(Claude):
    """Anthropic's Messages API, through its asynchronous SDK."""

    Options: ClassVar[type[ProviderOptions]] = AnthropicOptions

    @classmethod
    @override
    async def open(cls, model: str, options: ProviderOptions) -> Self:
        if not isinstance(options, AnthropicOptions):
            raise Internal("this provider was opened with the options of another one")
        url, key = options.url(), choose_key(options.key_file, options.key_variable, options.key_variables)
        module = await asyncio.to_thread(import_module, "tg_flow.providers.anthropic.client")
        connect = partial(module.connection, url)
        return cls(model, options, await KeyedConnection.open_in_thread(key, connect))

    @override
    async def models(self) -> tuple[ModelInfo, ...]:
        async with self._connection.lend() as connection:
            listed = read_whole_body(connection.models(), connection.failures, error_detail, self.clocks.first_token)
            return model_list(await listed)
