"""LlamaIndex, unmodified, in its own environment: OpenAI's chat.

python ask_by_llama_index.py URL TOKEN MODEL
"""

import sys
from collections.abc import Mapping
from typing import Any

from asking import ASK_NAME, COUNT, HELLO, NAME, TOO_LONG, WEATHER, WHO, Ask, Person, get_weather, raised, tell
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike


def features(llm: Any, by_schema: Any) -> Mapping[str, Ask]:
    """What is asked of a model."""

    async def text() -> object:
        pieces = [piece.delta or "" for piece in llm.stream_complete(HELLO)]
        return {"whole": llm.complete(HELLO).text, "streamed": pieces}

    async def tools() -> object:
        called: list[dict[str, str]] = []

        def weather(city: str) -> str:
            """Get the weather of a city."""
            called.append({"city": city})
            return str(get_weather(city))

        said = await FunctionAgent(tools=[weather], llm=llm).run(WEATHER)
        return {"called": called[0], "said": str(said)}

    async def schema() -> object:
        return {
            "schema": by_schema.as_structured_llm(Person).complete(WHO).raw,
            "tool": llm.as_structured_llm(Person).complete(WHO).raw,
        }

    async def second_turn() -> object:
        turns = [ChatMessage(content=NAME)]
        turns += [llm.chat(turns).message, ChatMessage(content=ASK_NAME)]
        return {"history": llm.chat(turns).message.content}

    async def too_long() -> object:
        return await raised(lambda: llm.complete(TOO_LONG))

    async def cut() -> object:
        return {
            "streamed": await raised(lambda: [piece.delta for piece in llm.stream_complete(COUNT)]),
            "whole": await raised(lambda: llm.complete(COUNT)),
        }

    asks: tuple[Ask, ...] = (text, tools, schema, second_turn, too_long, cut)
    return {ask.__name__: ask for ask in asks}


def main(url: str, token: str, model: str) -> None:
    """Ask at its door."""
    options: dict[str, Any] = {"model": model, "api_base": f"{url}/v1", "api_key": token, "max_retries": 0}
    options |= {"is_chat_model": True, "is_function_calling_model": True, "context_window": 100_000}
    by_schema = OpenAILike(**options, should_use_structured_outputs=True)
    tell({"OpenAI chat": features(OpenAILike(**options), by_schema)})


if __name__ == "__main__":
    main(*sys.argv[1:])
