"""Where OpenAI's Responses API is mounted."""

from typing import Final

from tg_gateway.dialects import Mount
from tg_gateway.dialects.responses import operations
from tg_gateway.dialects.responses.dialect import RESPONSES

RESPONSES_MOUNTS: Final = (
    Mount("POST", "/v1/responses", RESPONSES, operations.CREATE, large=True),
    Mount("GET", "/v1/responses", RESPONSES, operations.CONVERSE, socket=True),
    Mount("POST", "/v1/responses/input_tokens", RESPONSES, operations.COUNT, large=True),
    Mount("POST", "/v1/responses/compact", RESPONSES, operations.COMPACT, large=True),
    Mount("GET", "/v1/responses/{response}", RESPONSES, operations.RETRIEVE),
    Mount("DELETE", "/v1/responses/{response}", RESPONSES, operations.DELETE),
    Mount("GET", "/v1/responses/{response}/input_items", RESPONSES, operations.LIST_ITEMS),
    Mount("POST", "/v1/responses/{response}/cancel", RESPONSES, operations.CANCEL),
)
