"""pydantic-ai, unmodified, in its own environment: OpenAI's chat and the Responses API.

python ask_by_pydantic_ai.py URL TOKEN MODEL
"""

import sys
from collections.abc import Mapping
from typing import Any

from asking import ASK_NAME, COUNT, HELLO, NAME, TOO_LONG, WEATHER, WHO, Ask, Person, get_weather, raised, tell
from openai import AsyncOpenAI
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel, OpenAIResponsesModelSettings
from pydantic_ai.providers.openai import OpenAIProvider


def features(model: Any, settings: Any, kept: str) -> Mapping[str, Ask]:
    """What is asked of an agent with this model."""
    agent = Agent(model, model_settings=settings)

    async def stream(question: str) -> list[str]:
        async with agent.run_stream(question) as run:
            return [piece async for piece in run.stream_text(delta=True, debounce_by=None)]

    async def text() -> object:
        return {"whole": (await agent.run(HELLO)).output, "streamed": await stream(HELLO)}

    async def tools() -> object:
        called: list[dict[str, str]] = []

        def weather(city: str) -> str:
            """Get the weather of a city."""
            called.append({"city": city})
            return str(get_weather(city))

        result = await Agent(model, tools=[weather]).run(WEATHER)
        return {"called": called[0], "said": result.output}

    async def schema() -> object:
        by_tool = await Agent(model, output_type=Person).run(WHO)
        native = await Agent(model, output_type=NativeOutput(Person)).run(WHO)
        return {"schema": native.output, "tool": by_tool.output}

    async def second_turn() -> object:
        first = await agent.run(NAME)
        second = await agent.run(ASK_NAME, message_history=first.all_messages())
        return {kept: second.output}

    async def too_long() -> object:
        return await raised(lambda: agent.run(TOO_LONG))

    async def cut() -> object:
        return {"streamed": await raised(lambda: stream(COUNT)), "whole": await raised(lambda: agent.run(COUNT))}

    asks: tuple[Ask, ...] = (text, tools, schema, second_turn, too_long, cut)
    return {ask.__name__: ask for ask in asks}


def main(url: str, token: str, model: str) -> None:
    """Ask at each door."""
    provider = OpenAIProvider(openai_client=AsyncOpenAI(base_url=f"{url}/v1", api_key=token, max_retries=0))
    keeping = OpenAIResponsesModelSettings(openai_previous_response_id="auto")
    tell(
        {
            "OpenAI chat": features(OpenAIChatModel(model, provider=provider), None, "history"),
            "Responses": features(OpenAIResponsesModel(model, provider=provider), keeping, "previous_response_id"),
        }
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
