"""`huggingface_hub`'s chat, unmodified, in its own environment: OpenAI's chat.

python ask_by_hub_chat.py URL TOKEN MODEL
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

from asking import ASK_NAME, COUNT, HELLO, NAME, TOO_LONG, WEATHER, WHO, Ask, Person, get_weather, raised, tell
from huggingface_hub import InferenceClient

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}


def user(content: str) -> dict[str, str]:
    """A turn."""
    return {"role": "user", "content": content}


def features(client: InferenceClient, model: str) -> Mapping[str, Ask]:
    """What is asked of a client."""

    def complete(*messages: Any, **more: Any) -> Any:
        return client.chat_completion(list(messages), model=model, **more)

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
        said = complete(user(WEATHER), answer, result, tools=[TOOL]).choices[0].message.content
        return {"called": called, "said": said}

    async def schema() -> object:
        form = {"type": "json_schema", "json_schema": {"name": "person", "schema": Person.model_json_schema()}}
        return {"schema": json.loads(complete(user(WHO), response_format=form).choices[0].message.content)}

    async def second_turn() -> object:
        first = complete(user(NAME)).choices[0].message
        return {"history": complete(user(NAME), first, user(ASK_NAME)).choices[0].message.content}

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
    """Ask at its door."""
    tell({"OpenAI chat": features(InferenceClient(base_url=f"{url}/v1", api_key=token), model)})


if __name__ == "__main__":
    main(*sys.argv[1:])
