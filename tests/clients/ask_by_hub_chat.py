"""`huggingface_hub`'s chat, unmodified, in its own environment: OpenAI's chat.

python ask_by_hub_chat.py URL TOKEN MODEL
"""

import sys
from functools import partial

from asking import tell
from chat_features import chat_features
from huggingface_hub import InferenceClient


def main(url: str, token: str, model: str) -> None:
    """Ask at its door."""
    client = InferenceClient(base_url=f"{url}/v1", api_key=token)
    tell({"OpenAI chat": chat_features(partial(client.chat_completion, model=model), lambda message: message)})


if __name__ == "__main__":
    main(*sys.argv[1:])
