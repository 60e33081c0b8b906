"""Claude -> Anthropic's SDK -> socket: how its clients are called. The packages that host Claude make them."""

from functools import partial
from typing import Any

from tg_base.llm import NO_FAILURES, CapturedConnection, Failures


def connect_client(
    client: Any, response: type, stream: object, headers: dict[str, Any], failures: Failures = NO_FAILURES
) -> CapturedConnection:
    """A client of the SDK (for Anthropic's own API, or for another host of Claude), asked for bytes.

    The SDK knows the way and the credentials; the events are read by us, because its own reading takes an end of the
    stream without its terminal marker for a success.

    Args:
        client: its HTTP client has a `CapturingTransport`.
        response: the class of the SDK's HTTP responses.
        stream: the class of its streams.
        headers: of every request.
        failures: the SDK's exceptions where it has no credentials.
    """

    def post(body: dict[str, Any]) -> Any:
        options = {"headers": headers}
        return client.post("/v1/messages", body=body, cast_to=response, options=options, stream=True, stream_cls=stream)

    listing = {"headers": headers, "params": {"limit": 1000}}
    models = partial(client.get, "/v1/models", cast_to=response, options=listing)
    return CapturedConnection(post, models, client.close, failures)
