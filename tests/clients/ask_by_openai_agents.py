"""openai-agents, unmodified, in its own environment: the Responses API and OpenAI's chat.

python ask_by_openai_agents.py URL TOKEN MODEL
"""

import sys
from collections.abc import Mapping
from typing import Any

from agents import (
    Agent,
    AgentOutputSchema,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from asking import ASK_NAME, COUNT, HELLO, NAME, TOO_LONG, WEATHER, WHO, Ask, Person, get_weather, raised, tell
from openai import AsyncOpenAI


def features(model: Any, kept: str) -> Mapping[str, Ask]:
    """What is asked of an agent with this model."""
    agent = Agent(name="asker", model=model)

    async def stream(question: str) -> list[str]:
        run = Runner.run_streamed(agent, question)
        return [
            event.data.delta
            async for event in run.stream_events()
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
        ]

    async def text() -> object:
        return {"whole": (await Runner.run(agent, HELLO)).final_output, "streamed": await stream(HELLO)}

    async def tools() -> object:
        called: list[dict[str, str]] = []

        def weather(city: str) -> str:
            """Get the weather of a city."""
            called.append({"city": city})
            return str(get_weather(city))

        with_tool = Agent(name="asker", model=model, tools=[function_tool(weather)])
        return {"said": (await Runner.run(with_tool, WEATHER)).final_output, "called": called[0]}

    async def schema() -> object:
        shape = AgentOutputSchema(Person, strict_json_schema=False)
        strict = Agent(name="asker", model=model, output_type=Person)
        loose = Agent(name="asker", model=model, output_type=shape)
        return {
            "schema": (await Runner.run(loose, WHO)).final_output,
            "strict schema": (await Runner.run(strict, WHO)).final_output,
        }

    async def second_turn() -> object:
        first = await Runner.run(agent, NAME)
        if kept == "history":
            turns = [*first.to_input_list(), {"role": "user", "content": ASK_NAME}]
            return {kept: (await Runner.run(agent, turns)).final_output}
        second = await Runner.run(agent, ASK_NAME, previous_response_id=first.last_response_id)
        return {kept: second.final_output}

    async def too_long() -> object:
        return await raised(lambda: Runner.run(agent, TOO_LONG))

    async def cut() -> object:
        return {
            "streamed": await raised(lambda: stream(COUNT)),
            "whole": await raised(lambda: Runner.run(agent, COUNT)),
        }

    asks: tuple[Ask, ...] = (text, tools, schema, second_turn, too_long, cut)
    return {ask.__name__: ask for ask in asks}


def main(url: str, token: str, model: str) -> None:
    """Ask at each door."""
    set_tracing_disabled(disabled=True)
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key=token, max_retries=0)
    tell(
        {
            "Responses": features(OpenAIResponsesModel(model, client), "previous_response_id"),
            "OpenAI chat": features(OpenAIChatCompletionsModel(model, client), "history"),
        }
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
