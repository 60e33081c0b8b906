"""`text-generation`, unmodified, in its own environment: asks a server everything, and prints what it has read as JSON.

python ask_by_text_generation.py URL TOKEN
"""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

from text_generation import AsyncClient, Client

PROMPT = "say hello"
CHAT = [{"role": "user", "content": "hi"}]


def ask(url: str, token: str) -> dict[str, Any]:
    """Everything, by its name here."""
    client = Client(url, headers={"Authorization": f"Bearer {token}"})
    stranger = Client(url, headers={"Authorization": "Bearer wrong"})
    return {
        "text": client.generate(PROMPT).generated_text,
        "details": client.generate(PROMPT, top_n_tokens=2, decoder_input_details=True).model_dump(mode="json"),
        "full": client.generate(PROMPT, max_new_tokens=2, return_full_text=True).generated_text,
        "stopped": client.generate(PROMPT, stop_sequences=["lo", "x"]).model_dump(mode="json"),
        "best": client.generate(PROMPT, best_of=2, temperature=0.5, max_new_tokens=1).model_dump(mode="json"),
        "stream": [event.model_dump(mode="json") for event in client.generate_stream(PROMPT, seed=7, top_p=0.5)],
        "async": asyncio.run(ask_async(url, token)),
        "chat": client.chat(messages=CHAT, max_tokens=2).choices[0].message.content,
        "errors": {prompt: fail(client, prompt) for prompt in ("down", "busy", "cut")},
        "bad": fail(client, PROMPT, stop_sequences=["a", "b", "c", "d", "e"]),
        "stranger": fail(stranger, PROMPT),
    }


async def ask_async(url: str, token: str) -> list[str]:
    """A whole answer and the texts of a stream."""
    client = AsyncClient(url, headers={"Authorization": f"Bearer {token}"})
    whole = await client.generate(PROMPT)
    return [whole.generated_text, *[event.token.text async for event in client.generate_stream(PROMPT)]]


def fail(client: Client, prompt: str, **parameters: Any) -> list[list[str]]:
    """What a whole answer and a stream raise."""
    return [
        raised(lambda: client.generate(prompt, **parameters)),
        raised(lambda: list(client.generate_stream(prompt, **parameters))),
    ]


def raised(act: Callable[[], object]) -> list[str]:
    """The exception's name and its message."""
    try:
        act()
    except Exception as error:  # noqa: BLE001 - it is what is asked for
        return [type(error).__name__, str(error)]
    return []


if __name__ == "__main__":
    print(json.dumps(ask(*sys.argv[1:])))
