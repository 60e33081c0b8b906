"""`huggingface_hub`, unmodified, in its own environment: asks a server everything, and prints what it has read as JSON.

python ask_by_hub.py URL TOKEN
"""

import asyncio
import functools
import json
import sys
from collections.abc import Callable
from typing import Any

from huggingface_hub import AsyncInferenceClient, InferenceClient

PROMPT = "say hello"
CHAT = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
FORMS: list[dict[str, Any]] = [
    {"response_format": {"type": "json", "value": SCHEMA}},
    {"response_format": {"type": "regex", "value": "Hello"}},
    {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": {"function": {"name": "f"}}},
]
"""As its documentation and its types have them."""
FORM = {"type": "json_schema", "json_schema": {"name": "form", "schema": SCHEMA}}


def ask(url: str, token: str) -> dict[str, Any]:
    """Everything, by its name here."""
    # The client must be held: when it goes, its streams are closed.
    client = InferenceClient(model=url, provider="hf-inference", token=token)
    stranger = InferenceClient(model=url, provider="hf-inference", token="wrong")
    text = client.text_generation
    return {
        "text": text(PROMPT),
        "details": plain(text(PROMPT, details=True, top_n_tokens=2, decoder_input_details=True)),
        "full": text(PROMPT, max_new_tokens=2, return_full_text=True),
        "stopped": plain(text(PROMPT, details=True, stop=["lo", "x"])),
        "best": plain(text(PROMPT, details=True, best_of=2, do_sample=True, max_new_tokens=1)),
        "grammar": text(PROMPT, grammar={"type": "regex", "value": "Hel+o €"}),
        "stream": list(text(PROMPT, stream=True)),
        "events": [plain(event) for event in text(PROMPT, stream=True, details=True, seed=7, top_p=0.5)],
        "async": asyncio.run(ask_async(url, token)),
        "chat": client.chat_completion(CHAT, max_tokens=2).choices[0].message.content,
        "chat stream": [
            chunk.choices[0].delta.content or "" for chunk in client.chat_completion(CHAT, max_tokens=2, stream=True)
        ],
        "chat forms": [raised(functools.partial(client.chat_completion, CHAT, **form)) for form in FORMS],
        "chat schema": raised(lambda: client.chat_completion(CHAT, response_format=FORM)),
        "info": client.get_endpoint_info()["model_id"],
        "health": client.health_check(),
        "errors": {prompt: fail(text, prompt) for prompt in ("down", "busy", "cut")},
        "bad": fail(text, PROMPT, top_p=1.5),
        "stranger": fail(stranger.text_generation, PROMPT),
    }


async def ask_async(url: str, token: str) -> list[str]:
    """A whole answer and the texts of a stream."""
    client = AsyncInferenceClient(model=url, provider="hf-inference", token=token)
    whole = await client.text_generation(PROMPT)
    return [whole, *[piece async for piece in await client.text_generation(PROMPT, stream=True)]]


def fail(text: Callable[..., Any], prompt: str, **parameters: Any) -> list[list[str]]:
    """What a whole answer and a stream raise."""
    return [
        raised(lambda: text(prompt, **parameters)),
        raised(lambda: list(text(prompt, stream=True, **parameters))),
    ]


def plain(output: Any) -> Any:
    """An answer as JSON: its classes are dictionaries too."""
    return json.loads(json.dumps(output))


def raised(act: Callable[[], object]) -> list[str]:
    """The exception's name and its message."""
    try:
        act()
    except Exception as error:  # noqa: BLE001 - it is what is asked for
        return [type(error).__name__, str(error)]
    return []


if __name__ == "__main__":
    print(json.dumps(ask(*sys.argv[1:])))
