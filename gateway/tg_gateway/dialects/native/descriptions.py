"""Our own operations -> the gateway's OpenAPI document."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from tg_gateway.dialects import ASKING, EVENTS, Description
from tg_gateway.dialects.native.failures import NativeFailure, NativeRefusal
from tg_gateway.dialects.native.flow_service import MODELS
from tg_gateway.dialects.native.page import INDEX, PAGE
from tg_gateway.dialects.native.request_bodies import PromptBody
from tg_gateway.dialects.native.usage import UsageQuery
from tg_schema import (
    AGENT,
    PROMPT,
    TEXT_COMPLETION,
    AgentRequest,
    AgentResponse,
    PromptResponse,
    TextCompletionRequest,
    TextCompletionResponse,
)
from tg_schema.errors import NotFound
from tg_schema.served_model import ServedModels
from tg_schema.service_spec import USAGE
from tg_schema.usage_report import UsageResponse

_describe = partial(Description, group="Tokengrid", failure=NativeRefusal)
_ask = partial(_describe, events=EVENTS, raises=ASKING)
_COMPLETIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "whole": {"system": "be brief", "prompt": "What is a topic?"},
    "streamed": {"prompt": "What is a topic?", "streaming": True},
    "conversation": {"messages": [{"role": "user", "content": "Hello"}], "sampling": {"max_tokens": 16}},
}

NATIVE_DESCRIPTIONS: Final[Mapping[str, Description]] = {
    TEXT_COMPLETION.name: _ask(
        summary="Ask a model",
        body=TextCompletionRequest,
        answer=TextCompletionResponse,
        event=(TextCompletionResponse, NativeFailure),
        examples=_COMPLETIONS,
    ),
    PROMPT.name: _ask(
        summary="Ask a prompt template",
        body=PromptBody,
        required=("id",),
        answer=PromptResponse,
        event=(PromptResponse, NativeFailure),
        examples={"question": {"id": "question", "variables": {"question": "What is a queue?"}, "streaming": True}},
    ),
    AGENT.name: _ask(
        summary="Ask an agent",
        body=AgentRequest,
        required=("question",),
        answer=AgentResponse,
        event=AgentResponse,
        examples={"question": {"question": "What is 2 * 21?", "streaming": True}},
    ),
    "service": _ask(
        summary="Ask a service of a flow",
        body=(TextCompletionRequest, PromptBody, AgentRequest),
        answer=(TextCompletionResponse, PromptResponse, AgentResponse),
        event=(TextCompletionResponse, PromptResponse, AgentResponse, NativeFailure),
        path={"flow": "default", "service": TEXT_COMPLETION.name},
        examples=_COMPLETIONS,
    ),
    MODELS: _describe(summary="List the models, with their flows and features", answer=ServedModels),
    USAGE.name: _describe(
        summary="Sum up what was used, by key, model and the like",
        query=UsageQuery,
        answer=UsageResponse,
        raises=ASKING,
    ),
    PAGE: _describe(
        summary="Show the page to chat, or a file of it",
        answer=str,
        media="text/html",
        # TGI's clients find the health of their server at the same path.
        further={"application/json": None},
        path={"file": INDEX},
        raises=(NotFound,),
    ),
    "socket": _describe(summary="Open a WebSocket for many requests at once"),
}
