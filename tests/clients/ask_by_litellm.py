"""litellm's SDK, unmodified, in its own environment: OpenAI's chat, the Responses API and Anthropic's Messages.

python ask_by_litellm.py URL TOKEN MODEL
"""

import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import litellm
from asking import Ask, tell
from chat_features import chat_features


def features(**options: Any) -> Mapping[str, Ask]:
    """What is asked of its completions."""
    call = partial(litellm.completion, num_retries=0, max_retries=0, **options)
    asks: Mapping[str, Ask] = chat_features(call, litellm.Message.model_dump)
    return asks


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
