"""The catalogue -> what TGI reports of itself: `/info`, and the probe `/`."""

from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from typing import Final

import msgspec

from tg_doors.tgi.failures import Failure
from tg_doors.tgi.generation_parameters import MAX_STOP_SEQUENCES
from tg_gateway.dialects import Answer, Ask, Call, Catalogue, CompletionWriter
from tg_schema import TextCompletionRequest, TextCompletionResponse, encode
from tg_schema.errors import Unavailable
from tg_schema.sampling import MAX_CHOICES

ROUTER: Final = "tokengrid"
LIMITS_SECONDS: Final = 5.0
"""Timeout of asking a provider for its limits; after it they count as unknown."""


class ServerInfo(msgspec.Struct, frozen=True):
    """TGI's fields; null = a gateway does not know it of its models."""

    model_id: str
    version: str
    model_sha: None = None
    model_pipeline_tag: str = "text-generation"
    max_concurrent_requests: None = None
    max_best_of: int = MAX_CHOICES
    max_stop_sequences: int = MAX_STOP_SEQUENCES
    max_input_tokens: int | None = None
    max_total_tokens: int | None = None
    validation_workers: None = None
    max_client_batch_size: int = 1
    router: str = ROUTER
    sha: None = None
    docker_label: None = None


def describe_server(call: Call) -> Ask | Answer:
    """`GET /info`: describes the model of requests that name none. A live one is asked for its limits.

    Raises:
        Unavailable: no model is known yet.
    """
    found = call.catalogue.find_model(None)
    if found.model is None:
        raise Unavailable("no live processor serves a model; ask again later", retry_after=1.0)
    if not found.features:
        return describe_limitless(call)
    call.route = found.route
    request = TextCompletionRequest(operation="list-models", model=found.model)
    writer = CompletionWriter(partial(_encode_limits, model=found.model))
    return Ask(found.route, request, writer, streaming=False, deadline=LIMITS_SECONDS)


def describe_limitless(call: Call) -> Answer:
    """`GET /info` if no processor reports the model's limits."""
    return Answer(_encode(call.catalogue.find_model(None).model or "", 0))


def _encode_limits(records: Sequence[TextCompletionResponse], model: str) -> bytes:
    """The model and its limits, as its provider reports them."""
    lengths = (served.context_length for record in records for served in record.models)
    return _encode(model, next(lengths, 0))


def _encode(model: str, context: int) -> bytes:
    """`context` is the most tokens of prompt and answer together; 0 = unknown. At least one is the answer's."""
    limits = (context - 1, context) if context else (None, None)
    return encode(
        ServerInfo(model, version("tokengrid-gateway"), max_input_tokens=limits[0], max_total_tokens=limits[1])
    )


def show_health(catalogue: Catalogue) -> Answer:
    """`GET /`: an empty 200 if any model can be asked now, else TGI's 503."""
    if catalogue.models():
        return Answer(b"")
    return Answer(encode(Failure("unhealthy", "healthcheck")), Unavailable.status)
