"""TextCompletionRequest -> Anthropic's own API -> LlmChunks."""

from typing_extensions import override

from tg_base.llm import Key, SdkWire, choose_key
from tg_base.llm.anthropic import Claude, ClaudeOptions, error_detail, model_list


class AnthropicOptions(ClaudeOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of Anthropic.

    Attributes:
        base_url_variables: the SDK's own variable.
        key_file: path of the file with the key, which is read for every request.
        key_variable: the environment variable with the key; "" for a server that needs none.
        key_variables: the variables that are searched if both are absent: the SDK's own, and TrustGraph's.
    """

    base_url_variables: tuple[str, ...] = ("ANTHROPIC_BASE_URL",)
    default_base_url: str | None = "https://api.anthropic.com"
    key_file: str | None = None
    key_variable: str | None = None
    key_variables: tuple[str, ...] = ("ANTHROPIC_API_KEY", "CLAUDE_KEY")

    @override
    def key(self) -> Key:
        return choose_key(self.key_file, self.key_variable, self.key_variables)


class Anthropic(Claude[AnthropicOptions]):
    """Anthropic's Messages API, by its asynchronous SDK."""

    features = Claude.features | {"strict_tools"}
    wire = SdkWire(client="tg_flow.providers.anthropic.client", listed=model_list, error_detail=error_detail)
