"""Provider, model and options -> one minimal real request, and a line with its result."""

import time
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

from tg_base.llm import LlmService
from tg_flow.providers.registry import open_provider
from tg_schema import Sampling, TextCompletionRequest, TextCompletionResponse, TgError
from tg_schema.answer_collector import AnswerCollector

MAX_TOKENS = 16
"""Limit of the answer's tokens: the smallest that all providers accept."""

MAX_SHOWN_MODELS = 10

_REQUEST = TextCompletionRequest(prompt="Say: ok", streaming=True, sampling=Sampling(max_tokens=MAX_TOKENS), model=None)


async def check_provider(provider: str, model: str | None, options: Mapping[str, Any]) -> str:
    """Request a few tokens of `model`, without retries. Without a model, list them; if there is one, request that.

    Raises:
        TgError: the error that any request would get; its message begins with the provider and the error's type.
    """
    try:
        # A list needs no model, but every service has one, so pass the provider's own name.
        # Do not retry: a check reports what is wrong now.
        service = await open_provider(provider, model or provider, {**options, "tries": 1})
        try:
            if model is not None:
                return f"{provider}: {await _ask(service)}"
            names = [info.id for info in await service.models()]
        finally:
            await service.aclose()
    except TgError as error:
        raise type(error)(f"{provider}: {error.type}: {error.message}", retry_after=error.retry_after) from None
    if len(names) == 1:
        return await check_provider(provider, names[0], options)
    more = f" and {len(names) - MAX_SHOWN_MODELS} more" if len(names) > MAX_SHOWN_MODELS else ""
    listed = ", ".join(names[:MAX_SHOWN_MODELS]) or "none"
    return f"{provider}: answers, and has these models: {listed}{more}; to test one, name it with --model"


async def _ask(service: LlmService) -> str:
    began = time.monotonic()
    first: float | None = None
    records = AnswerCollector(TextCompletionResponse.join)
    async with aclosing(service.on_request(_REQUEST)) as stream:
        async for record in stream:
            if first is None:
                first = time.monotonic() - began
            records.add(record)
    answer = records.records()[-1]
    return (
        f"{answer.model} answered; first token after {first or 0.0:.2f} s, all after {time.monotonic() - began:.2f} s; "
        f"tokens: {_count(answer.in_token)} in, {_count(answer.out_token)} out; finish: {answer.finish_reason}"
    )


def _count(tokens: int | None) -> str:
    return "unknown" if tokens is None else str(tokens)
