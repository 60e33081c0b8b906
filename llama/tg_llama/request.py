"""TextCompletionRequest -> a request for a llama.cpp model: checked sampling, alternating turns, a grammar."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from uuid import uuid4

import msgspec

from tg_base.llm import LlmChunk
from tg_llama.chat import ToolTemplate
from tg_llama.grammar import ANY_OBJECT, TokenGrammars, choice_grammar, json_grammar, regex_grammar
from tg_llama.tools import ToolCallParser, tool_grammar
from tg_schema import Message, Sampling, TextCompletionRequest, Tool
from tg_schema.errors import BadRequest, TooLarge

MAX_STOPS = 16

MAX_LOGPROBS = 20

MAX_IDS = 200_000
"""Most token ids in one list, unless the vocabulary is larger. Checking more would delay all other prompts."""


def check_sampling(sampling: Sampling, vocabulary: int) -> None:
    """Check the values on which the engine relies.

    Args:
        sampling: the sampling of the request.
        vocabulary: the number of the model's tokens.

    Raises:
        BadRequest: the message names the field.
    """
    if sampling.max_tokens is not None and sampling.max_tokens < 1:
        raise BadRequest("sampling.max_tokens must be at least 1")
    for field in ("logprobs", "prompt_logprobs"):
        if not 0 <= (getattr(sampling, field) or 0) <= MAX_LOGPROBS:
            raise BadRequest(f"sampling.{field} must be from 0 to {MAX_LOGPROBS}")
    if len(sampling.stop) > MAX_STOPS:
        raise BadRequest(f"sampling.stop may have {MAX_STOPS} texts")
    check_ids("the ids that stop", sampling.stop_ids, vocabulary)


def check_ids(what: str, ids: tuple[int, ...], vocabulary: int) -> None:
    """Check that `ids` are tokens of the model.

    Args:
        what: the name of the list for errors, in words that suit the clients of every door.
        ids: the ids of the tokens.
        vocabulary: the size of the model's vocabulary.

    Raises:
        TooLarge: there are more ids than any context has tokens.
        BadRequest: one is not a token of the model.
    """
    if len(ids) > max(MAX_IDS, vocabulary):
        raise TooLarge(f"{what} may have {max(MAX_IDS, vocabulary)} ids")
    if ids and not 0 <= min(ids) <= max(ids) < vocabulary:
        raise BadRequest(f"{what}: this model's token ids are 0 to {vocabulary - 1}")


def keep_end(tokens: tuple[int, ...], most: int | None, begin: int | None) -> tuple[int, ...]:
    """The last `most` tokens of a prompt. If the prompt begins with the model's begin token, so does the result."""
    if most is None or len(tokens) <= most:
        return tokens
    head = tokens[:1] if tokens[:1] == (begin,) else ()
    return (*head, *tokens[len(tokens) - most + len(head) :])


def alternating_texts(turns: tuple[Message, ...]) -> list[str]:
    """The texts of a conversation; consecutive turns of one role are joined by a blank line.

    Raises:
        BadRequest: user and assistant do not take turns.
    """
    spoken = [(role, "\n\n".join(turn.text for turn in group)) for role, group in groupby(turns, attrgetter("role"))]
    if [role for role, _ in spoken] != (["user", "assistant"] * len(spoken))[: len(spoken)] or len(spoken) % 2 == 0:
        raise BadRequest("messages: this model knows turns of user and assistant, the first and the last the user's")
    return [text for _, text in spoken]


async def find_grammar(request: TextCompletionRequest, grammars: TokenGrammars, forced: str | None) -> str | None:
    """The grammar of the request's answers, or `forced`, a forced call's grammar; compiled. None = any text.

    Raises:
        BadRequest: no grammar can enforce the request's form; the message says why.
    """
    grammar = forced or await _form(request)
    sampling = request.sampling
    if grammar is not None and sampling is not None and (sampling.ignore_eos or sampling.min_tokens):
        raise BadRequest("ignore_eos and min_tokens cannot be combined with a schema, regex or choice; leave them out")
    if grammar is not None:
        await asyncio.to_thread(grammars.compile, grammar)
    return grammar


async def _form(request: TextCompletionRequest) -> str | None:
    if request.choice:
        return choice_grammar(request.choice)
    if request.regex is not None:
        return await asyncio.to_thread(regex_grammar, request.regex)
    schema = ANY_OBJECT if request.schema is None and request.response_format == "json" else request.schema
    if schema is None:
        return None
    try:
        return await asyncio.to_thread(_schema_grammar, msgspec.json.encode(schema))
    except (RecursionError, UnicodeEncodeError) as error:
        raise BadRequest("schema: it is nested too deep, or has a text that is not Unicode") from error


@lru_cache(maxsize=64)
def _schema_grammar(schema: bytes) -> str:
    return json_grammar(msgspec.json.decode(schema))


_FREE = {None, "", "auto", "none"}


def offered_tools(request: TextCompletionRequest) -> tuple[Tool, ...]:
    """The tools that the prompt shows, which are those that the model may call."""
    if request.tool_choice == "none":
        return ()
    return tuple([tool for tool in request.tools if not request.allowed_tools or tool.name in request.allowed_tools])


def needs_tools(request: TextCompletionRequest) -> bool:
    """Whether the prompt contains tools, calls or results."""
    return bool(offered_tools(request)) or any(turn.tool_calls or turn.role == "tool" for turn in request.messages)


def find_call_grammar(
    request: TextCompletionRequest, template: ToolTemplate, marks: Mapping[str, int] | None = None
) -> str | None:
    """The grammar of a forced call; None if the model is free to answer with text. `marks`: as for `tool_grammar`.

    Raises:
        BadRequest: the call cannot be forced, or the request combines tools with a form of the answer.
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
    answer: AsyncGenerator[LlmChunk, None], template: ToolTemplate, request: TextCompletionRequest, begun: str = ""
) -> AsyncGenerator[LlmChunk, None]:
    """The chunks of one answer, with its calls as deltas. If only one call is allowed, the answer ends after it.

    An answer with calls ends with "tool_calls", unless it was cut off. `begun` is the part of it that was already sent.
    """
    tools = {tool.name: tool.parameters for tool in offered_tools(request)}
    parser = ToolCallParser(template.form, tools, lambda: f"call_{uuid4().hex}")
    if begun:
        parser.feed(begun)
    # If the template can render only one call, a request with several calls and their results would be refused later.
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
