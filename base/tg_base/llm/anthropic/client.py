"""Claude -> Anthropic's SDK -> socket: how the SDK's clients are called. Packages that host Claude create them."""

from functools import partial
from typing import Any

import msgspec

from tg_base.llm import NO_FAILURES, CapturedConnection, Failures


class ClaudeCall(msgspec.Struct, frozen=True):
    """One call of the API.

    Attributes:
        path: such as "/v1/messages".
        body: the JSON object.
        betas: names of beta versions of the API.
    """

    path: str
    body: dict[str, Any]
    betas: tuple[str, ...] = ()


def connect_client(
    client: Any, response: type, stream: object, headers: dict[str, Any], failures: Failures = NO_FAILURES
) -> CapturedConnection:
    """A connection by a client of the SDK, for Anthropic's own API or another host of Claude.

    The SDK supplies URL and credentials. The events are decoded here, because the SDK reports a stream that ends
    without its terminal marker as complete.

    Args:
        client: its HTTP client has a `CapturingTransport`.
        response: the class of the SDK's HTTP responses.
        stream: the class of its streams.
        headers: sent with every request.
        failures: the SDK's exceptions for missing credentials.
    """

    def post(call: ClaudeCall) -> Any:
        # The SDK's low-level call sends the body as it is; its typed methods send only the fields that they know.
        betas = {"anthropic-beta": ",".join(call.betas)} if call.betas else {}
        options = {"headers": {**headers, **betas}}
        return client.post(call.path, body=call.body, cast_to=response, options=options, stream=True, stream_cls=stream)

    # The API's largest page, so that one request lists all models.
    listing = {"headers": headers, "params": {"limit": 1000}}
    models = partial(client.get, "/v1/models", cast_to=response, options=listing)
    return CapturedConnection(post, models, client.close, failures)
