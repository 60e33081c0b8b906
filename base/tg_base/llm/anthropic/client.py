"""Claude -> Anthropic's SDK -> socket: how the SDK's clients are called. Packages that host Claude create them."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from tg_base.llm import ANSWERS, COUNT, MODELS


def find_calls(client: Any, model: str) -> dict[str, Callable[[], Awaitable[object]]]:
    """What a `PreparedConnection` calls of a client of the SDK, for Anthropic's own API or another host of Claude."""
    # Some hosts have the model in the address.
    post = partial(client.post, body={"model": model, "stream": True}, cast_to=object)
    return {
        ANSWERS: partial(post, "/v1/messages"),
        COUNT: partial(post, "/v1/messages/count_tokens"),
        # The API's largest page, so that one request lists all models.
        MODELS: partial(client.get, "/v1/models", cast_to=object, options={"params": {"limit": 1000}}),
    }
