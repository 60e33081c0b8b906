"""A Messages body -> what the Anthropic door makes of it, for a model of Claude's unless the test says otherwise."""

import json
from typing import Any

from tests.fakes.messages_llm import CLAUDE
from tg_base.protocol import Route
from tg_gateway.dialects import FoundModel
from tg_gateway.dialects.anthropic.body import MessageBody
from tg_gateway.dialects.anthropic.request import MessageRequest, read_request
from tg_schema import (
    TEXT_COMPLETION,
    Sampling,
    TextCompletionRequest,
    Tool,
    decode,
)

ROUTE = Route("default", TEXT_COMPLETION, "q", "")
PEER = Route("default", TEXT_COMPLETION, "q", "", plain=True)
HI = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
WEATHER = {"name": "weather", "description": "of a town", "input_schema": SCHEMA}
DOCUMENT = {"type": "document", "source": {"type": "text", "data": "x"}}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
NESTED = {"type": "tool_result", "tool_use_id": "2"}
OURS = Tool("weather", "of a town", SCHEMA)


def read(body: dict[str, Any], *, features: Any = CLAUDE, betas: str = "", route: Any = ROUTE) -> MessageRequest:
    raw = json.dumps({"messages": [HI]} | body).encode()
    return read_request(decode(MessageBody, raw), raw, betas, FoundModel(route, None, None, frozenset(features)))


def request(**fields: Any) -> TextCompletionRequest:
    fields = {"prompt": None if "messages" in fields else "hi", "sampling": Sampling()} | fields
    return TextCompletionRequest(**fields)
