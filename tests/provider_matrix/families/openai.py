"""OpenAI's chat completions, for every provider that speaks them."""

from tests.fakes.openai_chat_server import OpenAiChatServer
from tests.provider_matrix.case import Case

CASES = (
    Case(
        "openai",
        OpenAiChatServer.running,
        options=lambda url: {"base_url": f"{url}/v1"},
        environment=lambda url: {"OPENAI_API_KEY": OpenAiChatServer.key},
    ),
)
