"""LangChain, unmodified, in its own environment: OpenAI's chat, the Responses API and Ollama's chat.

python ask_by_langchain.py URL TOKEN MODEL
"""

import sys
from collections.abc import Mapping
from typing import Any

from asking import ASK_NAME, COUNT, HELLO, NAME, TOO_LONG, WEATHER, WHO, Ask, Person, get_weather, raised, tell
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI


def features(chat: Any) -> Mapping[str, Ask]:
    """What is asked of a chat model."""

    async def text() -> object:
        return {"whole": (await chat.ainvoke(HELLO)).text, "streamed": [piece.text for piece in chat.stream(HELLO)]}

    async def tools() -> object:
        bound = chat.bind_tools([tool(get_weather)])
        turns: list[BaseMessage] = [HumanMessage(WEATHER)]
        answer: AIMessage = await bound.ainvoke(turns)
        (call,) = answer.tool_calls
        turns += [answer, ToolMessage(get_weather(**call["args"]), tool_call_id=call["id"])]
        return {"called": call["args"], "said": (await bound.ainvoke(turns)).text}

    async def schema() -> object:
        shape = Person.model_json_schema()
        return {
            "schema": await chat.with_structured_output(shape, method="json_schema").ainvoke(WHO),
            "tool": await chat.with_structured_output(shape, method="function_calling").ainvoke(WHO),
        }

    async def second_turn() -> object:
        # With `use_previous_response_id` it sends what comes after the first answer, and refers to that.
        kept = "previous_response_id" if getattr(chat, "use_previous_response_id", False) else "history"
        first = await chat.ainvoke(NAME)
        return {kept: (await chat.ainvoke([HumanMessage(NAME), first, HumanMessage(ASK_NAME)])).text}

    async def too_long() -> object:
        return await raised(lambda: chat.ainvoke(TOO_LONG))

    async def cut() -> object:
        return {
            "streamed": await raised(lambda: [piece.text for piece in chat.stream(COUNT)]),
            "whole": await raised(lambda: chat.ainvoke(COUNT)),
        }

    asks: tuple[Ask, ...] = (text, tools, schema, second_turn, too_long, cut)
    return {ask.__name__: ask for ask in asks}


def main(url: str, token: str, model: str) -> None:
    """Ask at each door."""
    openai: dict[str, Any] = {"base_url": f"{url}/v1", "api_key": token, "model": model, "max_retries": 0}
    responses = ChatOpenAI(**openai, use_responses_api=True, use_previous_response_id=True)
    ollama = ChatOllama(base_url=url, model=model, client_kwargs={"headers": {"Authorization": f"Bearer {token}"}})
    tell(
        {
            "OpenAI chat": features(ChatOpenAI(**openai)),
            "Responses": features(responses),
            "Ollama chat": features(ollama),
        }
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
