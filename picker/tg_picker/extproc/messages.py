"""Decision <-> Envoy's messages: their content in plain types, and the picker's replies to them.

All facts here are from Envoy's external_processor.proto and from the endpoint picker protocol v1.0.0.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, get_args

import msgspec
from google.protobuf.struct_pb2 import Struct as Metadata

from tg_base.telemetry import LOAD_REQUEST_HEADER
from tg_picker.extproc import wire
from tg_picker.extproc.decision import Directed, Refused
from tg_picker.pools import LOAD_FORMAT

_OPENAI_TYPES = {400: "invalid_request_error", 404: "invalid_request_error", 413: "invalid_request_error"}
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
_MESSAGES_PATH = "/v1/messages"


def _openai(refused: Refused) -> dict[str, Any]:
    kind = _OPENAI_TYPES.get(refused.status, "server_error" if refused.status >= 500 else "rate_limit_error")
    return {"error": {"message": refused.message, "type": kind, "param": None, "code": refused.reason}}


def _anthropic(refused: Refused) -> dict[str, Any]:
    kind = _ANTHROPIC_TYPES.get(refused.status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": refused.message}}


DESTINATION = "x-gateway-destination-endpoint"
NEXT_DESTINATIONS = ("x-tg-next-endpoint-1", "x-tg-next-endpoint-2")
"""The headers of the fallbacks for a cluster of type `ORIGINAL_DST`, whose destination is a single address."""
MAX_RETRIES = "x-envoy-max-retries"
"""A header for Envoy's router, which reads it if the filter's `mutation_rules` allow that."""
METADATA_NAMESPACE = "envoy.lb"
SUBSET_NAMESPACE = "envoy.lb.subset_hint"
SUBSET = "x-gateway-destination-endpoint-subset"
SERVED = "x-gateway-destination-endpoint-served"
_FILTER = "envoy.filters.http.ext_proc"
_UPSTREAM = "upstream.address"
DROPPED_REASON = "x-llm-d-request-dropped-reason"
MAX_PART_BYTES = 62_000
"""Most bytes of one streamed piece of a body. Envoy refuses gRPC messages above 64 KiB in this direction."""

_REPLACE = wire.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
"""Overwrite the header: the default would append our destination to one that a client invented."""

Kind = Literal[
    "request_headers", "request_body", "request_trailers", "response_headers", "response_body", "response_trailers"
]
"""The name of a message of Envoy's in `ProcessingRequest`. Its reply has the same name in `ProcessingResponse`."""
NOTHING_FOR: Final = {kind: wire.ProcessingResponse(**{kind: {}}) for kind in get_args(Kind)}
"""The replies that change nothing."""


def read_headers(headers: wire.HeaderMap) -> dict[str, str]:
    """Envoy's headers by name, which is in lower case already. Of a repeated header, the last value counts."""
    # Only old versions set `value`; it is empty if `raw_value` is set.
    return {
        header.key: raw.decode("utf-8", "replace") if (raw := header.raw_value) else header.value
        for header in headers.headers
    }


def read_subset(message: wire.ProcessingRequest) -> frozenset[str] | None:
    """The addresses that the data plane allows, from its filter metadata; None = all."""
    namespace = message.metadata_context.filter_metadata.get(SUBSET_NAMESPACE)
    if namespace is None or SUBSET not in namespace.fields:
        return None
    value = namespace.fields[SUBSET]
    if value.WhichOneof("kind") == "list_value":
        return frozenset(item.string_value for item in value.list_value.values)
    return frozenset(part.strip() for part in value.string_value.split(",") if part.strip())


def read_served(message: wire.ProcessingRequest) -> str:
    """The address that the data plane used; "" if it is not reported.

    A gateway writes it into the protocol's metadata, a plain Envoy into an attribute if its filter requests that.
    """
    namespace = message.metadata_context.filter_metadata.get(METADATA_NAMESPACE)
    if namespace is not None and SERVED in namespace.fields:
        return str(namespace.fields[SERVED].string_value)
    attributes = message.attributes.get(_FILTER)
    if attributes is None or _UPSTREAM not in attributes.fields:
        return ""
    return str(attributes.fields[_UPSTREAM].string_value)


def direct(kind: Literal["request_headers", "request_body"], directed: Directed) -> wire.ProcessingResponse:
    """The reply that directs a request: to its headers, or to its buffered body, with the body if that was changed."""
    common: dict[str, Any] = {"header_mutation": _directing(directed), "clear_route_cache": True}
    if kind == "request_body" and directed.body is not None:
        common["body_mutation"] = {"body": directed.body}
    return wire.ProcessingResponse(**{kind: {"response": common}}, dynamic_metadata=_metadata(directed))


def pass_on(kind: Literal["request_body", "response_body"], body: bytes, *, last: bool) -> wire.ProcessingResponse:
    """A piece of a body in Envoy's duplex mode. Envoy would answer 500 to a plain body mutation ("spurious")."""
    streamed = {"streamed_response": {"body": body, "end_of_stream": last}}
    return wire.ProcessingResponse(**{kind: {"response": {"body_mutation": streamed}}})


def pass_on_request(body: bytes, *, last: bool) -> Iterator[wire.ProcessingResponse]:
    """A request's body in pieces.

    Args:
        body: the whole body.
        last: whether the request ends with it; False = trailers follow.
    """
    for start in range(0, max(len(body), 1), MAX_PART_BYTES):
        end = start + MAX_PART_BYTES
        yield pass_on("request_body", body[start:end], last=last and end >= len(body))


def refuse(refused: Refused, path: str) -> wire.ProcessingResponse:
    """The response that the client gets in place of an endpoint's. It ends the exchange.

    OpenAI's and Anthropic's SDKs raise the right exception for its JSON body.
    """
    error = _anthropic(refused) if path.startswith(_MESSAGES_PATH) else _openai(refused)
    headers = {"content-type": "application/json", DROPPED_REASON: refused.reason}
    if refused.retry_after is not None:
        headers["retry-after"] = str(max(round(refused.retry_after), 1))
    return wire.ProcessingResponse(
        immediate_response=wire.ImmediateResponse(
            status={"code": refused.status},
            headers=wire.HeaderMutation(set_headers=_options(headers.items())),
            body=msgspec.json.encode(error),
            details=refused.reason,
        )
    )


def _directing(directed: Directed) -> wire.HeaderMutation:
    fallbacks = directed.addresses[1:]
    following = () if directed.is_list else tuple(zip(NEXT_DESTINATIONS, fallbacks, strict=False))
    # The second header asks the endpoint to report its load in a header of its response (ORCA).
    headers = [
        (DESTINATION, _destination(directed)),
        (LOAD_REQUEST_HEADER, LOAD_FORMAT),
        # With more retries than fallbacks, a request would reach a server twice, or a server of another pool.
        (MAX_RETRIES, str(len(fallbacks))),
        *following,
        *([] if directed.body is None else [("content-length", str(len(directed.body)))]),
    ]
    return wire.HeaderMutation(
        set_headers=_options(headers),
        # Remove the client's own values: otherwise it would choose the servers of a retry.
        remove_headers=NEXT_DESTINATIONS[len(following) :],
    )


def _destination(directed: Directed) -> str:
    return ",".join(directed.addresses) if directed.is_list else directed.addresses[0]


def _options(headers: Iterable[tuple[str, str]]) -> list[wire.HeaderValueOption]:
    return [
        wire.HeaderValueOption(
            # Envoy ignores `value` if it expects `raw_value`.
            header=wire.HeaderValue(key=key, raw_value=value.encode()),
            append_action=_REPLACE,
        )
        for key, value in headers
    ]


def _metadata(directed: Directed) -> Metadata:
    metadata = Metadata()
    metadata.update({METADATA_NAMESPACE: {DESTINATION: _destination(directed)}})
    return metadata
