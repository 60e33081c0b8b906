"""Where OpenAI's protocol is: the base URL of its SDKs is `http://HOST:PORT/v1`."""

from typing import Final

from tg_gateway.dialects import Mount
from tg_gateway.dialects.openai.dialect import OPENAI

OPENAI_MOUNTS: Final[tuple[Mount, ...]] = (
    Mount("GET", "/v1/models", OPENAI, "list-models"),
    Mount("GET", "/v1/models/{model}", OPENAI, "show-model"),
    Mount("POST", "/v1/chat/completions", OPENAI, "chat-completion", large=True),
    Mount("POST", "/v1/completions", OPENAI, "completion", large=True),
)
