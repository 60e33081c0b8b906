"""Decision -> Envoy's messages: what the picker answers to each part of a request and its response.

Source of every fact here: Envoy's external_processor.proto, and the endpoint picker protocol v1.0.0.
"""

from collections.abc import Iterable, Iterator, Mapping

from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as wire
from google.protobuf.struct_pb2 import Struct as Metadata

from tg_gateway.envoy.decision import Directed, Refused
from tg_gateway.envoy.refusal_body import write_refusal

DESTINATION = "x-gateway-destination-endpoint"
METADATA_NAMESPACE = "envoy.lb"
DROPPED_REASON = "x-llm-d-request-dropped-reason"
MAX_PART_BYTES = 62_000
"""Of one streamed piece of a body. Envoy refuses a gRPC message above 64 KiB in this direction."""

_REPLACE = base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
"""Not the default, which would leave a destination that a client made up in front of ours."""

NOTHING_FOR_HEADERS = wire.ProcessingResponse(request_headers=wire.HeadersResponse())
NOTHING_FOR_BODY = wire.ProcessingResponse(request_body=wire.BodyResponse())
NOTHING_FOR_TRAILERS = wire.ProcessingResponse(request_trailers=wire.TrailersResponse())
NOTHING_FOR_RESPONSE_HEADERS = wire.ProcessingResponse(response_headers=wire.HeadersResponse())
NOTHING_FOR_RESPONSE_BODY = wire.ProcessingResponse(response_body=wire.BodyResponse())
NOTHING_FOR_RESPONSE_TRAILERS = wire.ProcessingResponse(response_trailers=wire.TrailersResponse())


def direct_headers(directed: Directed, added: Mapping[str, str]) -> wire.ProcessingResponse:
    """The answer to a request's headers that says where it goes.

    Args:
        directed: the decision.
        added: further headers for the endpoint.
    """
    common = wire.CommonResponse(header_mutation=_mutation(directed, added), clear_route_cache=True)
    return wire.ProcessingResponse(
        request_headers=wire.HeadersResponse(response=common), dynamic_metadata=_metadata(directed)
    )


def direct_buffered_body(directed: Directed, added: Mapping[str, str]) -> wire.ProcessingResponse:
    """The answer to a buffered body that says where it goes, with the body if it changed."""
    common = wire.CommonResponse(header_mutation=_mutation(directed, added), clear_route_cache=True)
    if directed.body is not None:
        common.body_mutation.body = directed.body
    return wire.ProcessingResponse(
        request_body=wire.BodyResponse(response=common), dynamic_metadata=_metadata(directed)
    )


def stream_request_body(body: bytes, *, last: bool) -> Iterator[wire.ProcessingResponse]:
    """A body in pieces for Envoy's duplex mode. A plain body mutation would be "spurious" there: a 500.

    Args:
        body: all of it.
        last: whether nothing follows; False = trailers do.
    """
    for start in range(0, max(len(body), 1), MAX_PART_BYTES):
        end = start + MAX_PART_BYTES
        part = wire.StreamedBodyResponse(body=body[start:end], end_of_stream=last and end >= len(body))
        common = wire.CommonResponse(body_mutation=wire.BodyMutation(streamed_response=part))
        yield wire.ProcessingResponse(request_body=wire.BodyResponse(response=common))


def stream_response_body(body: bytes, *, last: bool) -> wire.ProcessingResponse:
    """A piece of the endpoint's answer, passed on as it came. Holding it back would stop the stream."""
    part = wire.StreamedBodyResponse(body=body, end_of_stream=last)
    common = wire.CommonResponse(body_mutation=wire.BodyMutation(streamed_response=part))
    return wire.ProcessingResponse(response_body=wire.BodyResponse(response=common))


def refuse(refused: Refused, path: str) -> wire.ProcessingResponse:
    """The answer to the client in place of an endpoint's. It ends the exchange."""
    headers = {"content-type": "application/json", DROPPED_REASON: refused.reason}
    if refused.retry_after is not None:
        headers["retry-after"] = str(max(round(refused.retry_after), 1))
    return wire.ProcessingResponse(
        immediate_response=wire.ImmediateResponse(
            status={"code": refused.status},
            headers=wire.HeaderMutation(set_headers=_options(headers.items())),
            body=write_refusal(refused, path),
            details=refused.reason,
        )
    )


def _mutation(directed: Directed, added: Mapping[str, str]) -> wire.HeaderMutation:
    headers = {DESTINATION: ",".join(directed.addresses), **added}
    if directed.body is not None:
        headers["content-length"] = str(len(directed.body))
    return wire.HeaderMutation(set_headers=_options(headers.items()))


def _options(headers: Iterable[tuple[str, str]]) -> list[base_pb2.HeaderValueOption]:
    return [
        base_pb2.HeaderValueOption(
            # Envoy ignores `value` where it expects `raw_value`.
            header=base_pb2.HeaderValue(key=key, raw_value=value.encode()),
            append_action=_REPLACE,
        )
        for key, value in headers
    ]


def _metadata(directed: Directed) -> Metadata:
    metadata = Metadata()
    metadata.update({METADATA_NAMESPACE: {DESTINATION: ",".join(directed.addresses)}})
    return metadata
