"""Tools of a request -> grammar of forced calls; a model's text -> the calls in it."""

from tg_llama.tools.tool_call_parser import ToolCallParser
from tg_llama.tools.tool_format import TOOL_FORMATS, ToolFormat
from tg_llama.tools.tool_grammar import tool_grammar

__all__ = ["TOOL_FORMATS", "ToolCallParser", "ToolFormat", "tool_grammar"]
