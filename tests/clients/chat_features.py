"""What is asked of a client whose calls and answers are those of OpenAI's chat completions, whatever its own names."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from asking import ASK_NAME, COUNT, HELLO, NAME, TOO_LONG, WEATHER, WHO, Ask, Person, get_weather, raised

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}


def user(content: str) -> dict[str, str]:
    """A turn."""
    return {"role": "user", "content": content}


def chat_features(call: Callable[..., Any], turn_of: Callable[[Any], Any]) -> Mapping[str, Ask]:
    """The questions.

    Args:
        call: takes `messages` and what else a completion has.
        turn_of: makes an answer's message one that can be sent.
    """

    def complete(*messages: Any, **more: Any) -> Any:
        return call(messages=list(messages), **more)

    def answer(*messages: Any, **more: Any) -> Any:
        return complete(*messages, **more).choices[0].message

    def stream(question: str) -> list[str]:
        chunks = complete(user(question), stream=True)
        return [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]

    async def text() -> object:
        return {"whole": answer(user(HELLO)).content, "streamed": stream(HELLO)}

    async def tools() -> object:
        asked = answer(user(WEATHER), tools=[TOOL])
        (tool_call,) = asked.tool_calls
        called = json.loads(tool_call.function.arguments)
        result = {"role": "tool", "tool_call_id": tool_call.id, "content": get_weather(**called)}
        return {"called": called, "said": answer(user(WEATHER), turn_of(asked), result, tools=[TOOL]).content}

    async def schema() -> object:
        shape = {"name": "person", "schema": Person.model_json_schema()}
        form = {"type": "json_schema", "json_schema": shape}
        return {"schema": json.loads(answer(user(WHO), response_format=form).content)}

    async def second_turn() -> object:
        return {"history": answer(user(NAME), turn_of(answer(user(NAME))), user(ASK_NAME)).content}

    async def too_long() -> object:
        return await raised(lambda: complete(user(TOO_LONG)))

    async def cut() -> object:
        return {
            "streamed": await raised(lambda: stream(COUNT)),
            "whole": await raised(lambda: complete(user(COUNT))),
        }

    asks: tuple[Ask, ...] = (text, tools, schema, second_turn, too_long, cut)
    return {ask.__name__: ask for ask in asks}
