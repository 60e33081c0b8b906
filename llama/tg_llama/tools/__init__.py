"""Tools of a request -> grammar of forced calls; a model's text -> the calls in it."""

from tg_llama.tools.copied_arguments import let_copy
from tg_llama.tools.tool_call_parser import ToolCallParser
from tg_llama.tools.tool_format import TOOL_FORMATS, ToolFormat
from tg_llama.tools.tool_grammar import free_grammar, tool_grammar

__all__ = ["TOOL_FORMATS", "ToolCallParser", "ToolFormat", "free_grammar", "let_copy", "tool_grammar"]
