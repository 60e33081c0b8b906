"""Chunks of a model's text -> chunks with its tool calls: what a request with tools asks for, and how it is read."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from uuid import uuid4

import msgspec

from tg_base.llm import LlmChunk
from tg_llama.chat import ToolTemplate
from tg_llama.tools import ToolCallParser, tool_grammar
from tg_schema import TextCompletionRequest, Tool
from tg_schema.errors import BadRequest

_FREE = {None, "", "auto", "none"}


def offered_tools(request: TextCompletionRequest) -> tuple[Tool, ...]:
    """The tools that the model is told of: those that it may call."""
    if request.tool_choice == "none":
        return ()
    return tuple([tool for tool in request.tools if not request.allowed_tools or tool.name in request.allowed_tools])


def needs_tools(request: TextCompletionRequest) -> bool:
    """Whether the prompt has tools, calls or results in it."""
    return bool(offered_tools(request)) or any(turn.tool_calls or turn.role == "tool" for turn in request.messages)


def find_call_grammar(
    request: TextCompletionRequest, template: ToolTemplate, marks: Mapping[str, int] | None = None
) -> str | None:
    """The grammar of a forced call; None if the model is free to answer with text. `marks`: as for `tool_grammar`.

    Raises:
        BadRequest: the call cannot be forced, or the request wants a form of the answer beside tools.
    """
    tools = offered_tools(request)
    formed = request.schema is not None or request.response_format == "json" or request.regex is not None
    if tools and (formed or request.choice):
        raise BadRequest("tools and a form of the answer (schema, json, regex, choice): ask for one of them at a time")
    if tools and request.echo:
        raise BadRequest("echo: an answer that may be a tool call cannot begin with the prompt; leave it out")
    if not tools or request.tool_choice in _FREE:
        return None
    named = [tool for tool in tools if tool.name == request.tool_choice]
    several = template.several and not named and request.parallel_tool_calls is not False
    return tool_grammar(template.form, named or tools, several=several, marks=marks)


async def read_calls(
    answer: AsyncGenerator[LlmChunk, None], template: ToolTemplate, request: TextCompletionRequest
) -> AsyncGenerator[LlmChunk, None]:
    """The chunks of one answer, its calls as deltas; it ends with its first call where there may be no other one.

    An answer with calls ends with "tool_calls", unless it was cut off.
    """
    parser = ToolCallParser(
        template.form, {tool.name: tool.parameters for tool in offered_tools(request)}, _new_call_id
    )
    # Several would be refused with their results, where the template tells one call at a time.
    single = request.parallel_tool_calls is False or not template.several
    async with aclosing(answer):
        async for chunk in answer:
            text, calls = parser.feed(chunk.text)
            if single:
                calls = tuple([call for call in calls if call.index == 0])
            reason = chunk.finish_reason
            if reason is not None:
                rest, more = parser.flush()
                text, calls = text + rest, calls + more
                reason = "tool_calls" if reason == "stop" and parser.begun else reason
            elif single and parser.ended:
                reason = "tool_calls"
            yield msgspec.structs.replace(chunk, text=text, tool_calls=calls, finish_reason=reason)
            if reason is not None:
                return


def _new_call_id() -> str:
    return f"call_{uuid4().hex}"
