"""Claude -> Anthropic's SDK -> socket: how the SDK's clients are called. Packages that host Claude create them."""

from functools import partial
from typing import Any

from tg_base.llm import NO_FAILURES, CapturedConnection, Failures


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

    def post(body: dict[str, Any]) -> Any:
        # The SDK's low-level call sends the body as it is; its typed methods send only the fields that they know.
        options = {"headers": headers}
        return client.post("/v1/messages", body=body, cast_to=response, options=options, stream=True, stream_cls=stream)

    listing = {"headers": headers, "params": {"limit": 1000}}
    models = partial(client.get, "/v1/models", cast_to=response, options=listing)
    return CapturedConnection(post, models, client.close, failures)
