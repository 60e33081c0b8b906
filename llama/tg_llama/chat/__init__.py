"""Conversation -> the tokens of a prompt, by the model's own template."""

from tg_llama.chat.prompt_tokenizer import PromptTokenizer
from tg_llama.chat.tool_template import ToolTemplate

__all__ = ["PromptTokenizer", "ToolTemplate"]
