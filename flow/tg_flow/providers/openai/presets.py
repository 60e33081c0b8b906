"""Names of servers with OpenAI's API -> the provider class for each, and its options that differ from the defaults."""

from typing import Any

from tg_base.llm import Preset
from tg_flow.providers.openai.provider import ChatCompletions, OpenAi, OpenAiCompatible
from tg_flow.providers.openai.vllm import Vllm
from tg_schema.features import Feature

UNCERTAIN: frozenset[Feature] = frozenset({"n", "allowed_tools", "strict_tools", "parallel_tool_calls"})
"""Features that many compatible servers silently ignore."""


def _compatible(
    key: str,
    url: str,
    default: str | None = None,
    without: frozenset[Feature] = UNCERTAIN,
    kind: type[ChatCompletions[Any]] = OpenAiCompatible,
    **more: Any,
) -> Preset:
    """A server that usually needs no key: its variables, its default URL, and the features that it lacks."""
    options = {"key_variables": (key,), "key_needed": False, "base_url_variables": (url,), "default_base_url": default}
    return Preset(kind, {**options, "without": without, **more})


OPENAI = Preset(
    OpenAi,
    {
        # Features of OpenAI's current API that compatible servers may lack.
        "developer_role": True,
        "hint_fields": {"user": "safety_identifier", "cache_key": "prompt_cache_key"},
    },
)
AZURE_AI = Preset(
    OpenAi,
    {
        "key_variables": ("AZURE_AI_API_KEY", "AZURE_TOKEN"),
        "base_url_variables": ("AZURE_AI_ENDPOINT", "AZURE_ENDPOINT"),
        "base_url_path": "/openai/v1",
        "without": ("top_k", "n", "allowed_tools"),
        "default_base_url": None,
    },
)
ANY_COMPATIBLE = _compatible("OPENAI_COMPATIBLE_API_KEY", "OPENAI_COMPATIBLE_BASE_URL")
LLAMAFILE = _compatible("LLAMAFILE_API_KEY", "LLAMAFILE_URL", "http://localhost:8080/v1", UNCERTAIN | {"reasoning"})
LM_STUDIO = _compatible(
    "LM_API_TOKEN", "LMSTUDIO_URL", "http://localhost:1234/v1", UNCERTAIN | {"reasoning", "json", "logprobs"}
)
VLLM = _compatible(
    "VLLM_API_KEY",
    "VLLM_BASE_URL",
    "http://localhost:8000/v1",
    frozenset({"allowed_tools", "strict_tools"}),
    Vllm,
    salt_field="cache_salt",  # vLLM's; a server that refuses unknown fields needs `salt_field = ""`
)
