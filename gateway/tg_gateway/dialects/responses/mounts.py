"""Where OpenAI's Responses API is mounted."""

from typing import Final

from tg_gateway.dialects import Mount
from tg_gateway.dialects.responses.dialect import RESPONSES
from tg_gateway.dialects.responses.operations import (
    CANCEL,
    COMPACT,
    CONVERSE,
    COUNT,
    CREATE,
    DELETE,
    LIST_ITEMS,
    RETRIEVE,
)

RESPONSES_MOUNTS: Final = (
    Mount("POST", "/v1/responses", RESPONSES, CREATE, large=True),
    Mount("GET", "/v1/responses", RESPONSES, CONVERSE, socket=True),
    Mount("POST", "/v1/responses/input_tokens", RESPONSES, COUNT, large=True),
    Mount("POST", "/v1/responses/compact", RESPONSES, COMPACT, large=True),
    Mount("GET", "/v1/responses/{response}", RESPONSES, RETRIEVE),
    Mount("DELETE", "/v1/responses/{response}", RESPONSES, DELETE),
    Mount("GET", "/v1/responses/{response}/input_items", RESPONSES, LIST_ITEMS),
    Mount("POST", "/v1/responses/{response}/cancel", RESPONSES, CANCEL),
)
