"""`llm`, unmodified, in its own environment: OpenAI's chat, by its configuration of further models.

python ask_by_llm.py URL TOKEN MODEL
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import llm
from asking import ASK_NAME, COUNT, HELLO, NAME, TOO_LONG, WEATHER, WHO, Ask, Person, get_weather, raised, tell


def features(model: Any) -> Mapping[str, Ask]:
    """What is asked of a model."""

    async def text() -> object:
        return {"whole": model.prompt(HELLO, stream=False).text(), "streamed": list(model.prompt(HELLO, stream=True))}

    async def tools() -> object:
        called: list[dict[str, str]] = []

        def weather(city: str) -> str:
            """Get the weather of a city."""
            called.append({"city": city})
            return str(get_weather(city))

        said = [response.text() for response in model.chain(WEATHER, tools=[weather]).responses()]
        return {"called": called[0], "said": said[-1]}

    async def schema() -> object:
        return {"schema": json.loads(model.prompt(WHO, schema=Person).text())}

    async def second_turn() -> object:
        conversation = model.conversation()
        conversation.prompt(NAME).text()
        return {"history": conversation.prompt(ASK_NAME).text()}

    async def too_long() -> object:
        return await raised(lambda: model.prompt(TOO_LONG).text())

    async def cut() -> object:
        return {
            "streamed": await raised(lambda: list(model.prompt(COUNT, stream=True))),
            "whole": await raised(lambda: model.prompt(COUNT, stream=False).text()),
        }

    asks: tuple[Ask, ...] = (text, tools, schema, second_turn, too_long, cut)
    return {ask.__name__: ask for ask in asks}


def main(url: str, token: str, model: str) -> None:
    """Ask at its door."""
    settings = {
        "model_id": "served",
        "model_name": model,
        "api_base": f"{url}/v1",
        "api_key_name": "gateway",
        "supports_schema": True,
        "supports_tools": True,
    }
    home = Path(os.environ["LLM_USER_PATH"])
    home.mkdir()
    # JSON is YAML, too.
    (home / "extra-openai-models.yaml").write_text(json.dumps([settings]), "utf-8")
    (home / "keys.json").write_text(json.dumps({"gateway": token}), "utf-8")
    tell({"OpenAI chat": features(llm.get_model("served"))})


if __name__ == "__main__":
    main(*sys.argv[1:])
