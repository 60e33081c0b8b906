"""PromptRequest -> template -> text completion: the prompt service and its templates."""

from tg_flow.prompt.prompt_kind import PromptKind
from tg_flow.prompt.prompt_service import PromptService, Rendering
from tg_flow.prompt.prompt_template import PromptTemplate, Rendered, Templates

__all__ = [
    "PromptKind",
    "PromptService",
    "PromptTemplate",
    "Rendered",
    "Rendering",
    "Templates",
]
