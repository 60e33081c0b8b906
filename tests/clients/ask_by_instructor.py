"""instructor, unmodified, in its own environment: OpenAI's chat, whose answers it makes objects of.

python ask_by_instructor.py URL TOKEN MODEL
"""

import sys
from collections.abc import Mapping
from typing import Any

import instructor
from asking import ASK_NAME, COUNT, HELLO, NAME, TOO_LONG, WHO, Ask, Person, raised, tell
from openai import OpenAI

MODES = (instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS, instructor.Mode.JSON)


def features(openai: OpenAI, model: str) -> Mapping[str, Ask]:
    """What is asked of it. Its tools are its objects; without one it is OpenAI's SDK."""
    clients = [instructor.from_openai(openai, mode=mode) for mode in MODES]
    client: Any = clients[0]

    def create(content: str, *turns: dict[str, str], of: Any = client, shape: Any = Person, **more: Any) -> Any:
        messages = [*turns, {"role": "user", "content": content}]
        return of.create(model=model, messages=messages, response_model=shape, max_retries=0, **more)

    async def text() -> object:
        chunks = create(HELLO, shape=None, stream=True)
        return {
            "whole": create(HELLO, shape=None).choices[0].message.content,
            "streamed": [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices],
        }

    async def schema() -> object:
        by_schema, by_tool, by_words = [create(WHO, of=client) for client in clients]
        partial = list(create(WHO, shape=instructor.Partial[Person], stream=True))
        return {"schema": by_schema, "tool": by_tool, "JSON": by_words, "streamed schema": partial[-1].model_dump()}

    async def second_turn() -> object:
        turns = ({"role": "user", "content": NAME}, {"role": "assistant", "content": "Hello world €."})
        return {"history": create(ASK_NAME, *turns, shape=None).choices[0].message.content}

    async def too_long() -> object:
        return await raised(lambda: create(TOO_LONG))

    async def cut() -> object:
        return {
            "streamed": await raised(lambda: list(create(COUNT, shape=instructor.Partial[Person], stream=True))),
            "whole": await raised(lambda: create(COUNT)),
        }

    asks: tuple[Ask, ...] = (text, schema, second_turn, too_long, cut)
    return {ask.__name__: ask for ask in asks}


def main(url: str, token: str, model: str) -> None:
    """Ask at its door."""
    tell({"OpenAI chat": features(OpenAI(base_url=f"{url}/v1", api_key=token, max_retries=0), model)})


if __name__ == "__main__":
    main(*sys.argv[1:])
