"""OpenAI's chat completions, for every provider that speaks them."""

from tests.fakes.openai_chat_server import (
    AzureAiServer,
    AzureOpenAiServer,
    CompatibleServer,
    OpenAiChatServer,
    VllmServer,
)
from tests.provider_matrix.case import TELLS, Case


def _at_home(provider: str, url: str, key: str, server: type[CompatibleServer] = CompatibleServer) -> Case:
    """A server without a key, found by the variable `url`, whose URL has no path."""
    return Case(
        provider,
        server.running,
        thinking={"thinking_field": "reasoning_content"},
        options=lambda _: {},
        environment=lambda here: {url: f"{here}/", key: ""},
    )


CASES = (
    Case(
        "openai",
        OpenAiChatServer.running,
        options=lambda url: {"base_url": f"{url}/v1"},
        environment=lambda _: {"OPENAI_API_KEY": OpenAiChatServer.key},
        tells=TELLS - {"rounds"},
    ),
    Case(
        "azure-openai",
        AzureOpenAiServer.running,
        options=lambda _: {},
        environment=lambda url: {"AZURE_ENDPOINT": url, "AZURE_TOKEN": AzureOpenAiServer.key},
        tells=TELLS - {"rounds"},
    ),
    Case(
        "azure-ai",
        AzureAiServer.running,
        options=lambda _: {},
        environment=lambda url: {
            "AZURE_ENDPOINT": f"{url}{AzureAiServer.completions}",
            "AZURE_TOKEN": AzureAiServer.key,
        },
        tells=TELLS - {"rounds"},
    ),
    Case(
        "pool",
        CompatibleServer.running,
        thinking={"thinking_field": "reasoning_content"},
        options=lambda url: {"endpoints": [url.removeprefix("http://")], "scraped": False, "tries": 3},
        environment=lambda _: {"POOL_API_KEY": ""},
        tells=TELLS - {"models"},
    ),
    _at_home("vllm", "VLLM_BASE_URL", "VLLM_API_KEY", VllmServer),
    _at_home("lm-studio", "LMSTUDIO_URL", "LM_API_TOKEN"),
    _at_home("llamafile", "LLAMAFILE_URL", "LLAMAFILE_API_KEY"),
    _at_home("openai-compatible", "OPENAI_COMPATIBLE_BASE_URL", "OPENAI_COMPATIBLE_API_KEY"),
)
