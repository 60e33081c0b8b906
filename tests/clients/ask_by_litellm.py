"""litellm's SDK, unmodified, in its own environment: OpenAI's chat, the Responses API and Anthropic's Messages.

python ask_by_litellm.py URL TOKEN MODEL
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

import litellm
from asking import ASK_NAME, COUNT, HELLO, NAME, TOO_LONG, WEATHER, WHO, Ask, Person, get_weather, raised, tell

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}


def user(content: str) -> dict[str, str]:
    """A turn."""
    return {"role": "user", "content": content}


def features(**options: Any) -> Mapping[str, Ask]:
    """What is asked of its completions."""

    def complete(*messages: Any, **more: Any) -> Any:
        return litellm.completion(messages=list(messages), num_retries=0, max_retries=0, **options, **more)

    def stream(question: str) -> list[str]:
        chunks = complete(user(question), stream=True)
        return [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]

    async def text() -> object:
        return {"whole": complete(user(HELLO)).choices[0].message.content, "streamed": stream(HELLO)}

    async def tools() -> object:
        answer = complete(user(WEATHER), tools=[TOOL]).choices[0].message
        (call,) = answer.tool_calls
        called = json.loads(call.function.arguments)
        result = {"role": "tool", "tool_call_id": call.id, "content": get_weather(**called)}
        said = complete(user(WEATHER), answer.model_dump(), result, tools=[TOOL]).choices[0].message.content
        return {"called": called, "said": said}

    async def schema() -> object:
        shape = {"name": "person", "schema": Person.model_json_schema()}
        form = {"type": "json_schema", "json_schema": shape}
        return {"schema": json.loads(complete(user(WHO), response_format=form).choices[0].message.content)}

    async def second_turn() -> object:
        first = complete(user(NAME)).choices[0].message
        said = complete(user(NAME), first.model_dump(), user(ASK_NAME)).choices[0].message.content
        return {"history": said}

    async def too_long() -> object:
        return await raised(lambda: complete(user(TOO_LONG)))

    async def cut() -> object:
        return {
            "streamed": await raised(lambda: stream(COUNT)),
            "whole": await raised(lambda: complete(user(COUNT))),
        }

    asks: tuple[Ask, ...] = (text, tools, schema, second_turn, too_long, cut)
    return {ask.__name__: ask for ask in asks}


def main(url: str, token: str, model: str) -> None:
    """Ask at each door."""
    litellm.suppress_debug_info = True
    tell(
        {
            "OpenAI chat": features(model=f"openai/{model}", api_base=f"{url}/v1", api_key=token),
            "Anthropic Messages": features(model=f"anthropic/{model}", api_base=url, api_key=token, max_tokens=100),
        }
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
