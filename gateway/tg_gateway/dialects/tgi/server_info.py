"""What can be asked -> what TGI says of itself: `/info`, and whether it is of use."""

from importlib.metadata import version
from typing import Final

import msgspec

from tg_gateway.dialects import Answer, Catalogue
from tg_gateway.dialects.tgi.failures import Failure
from tg_gateway.dialects.tgi.generation_parameters import MAX_STOP_SEQUENCES
from tg_schema import encode
from tg_schema.errors import Unavailable
from tg_schema.sampling import MAX_CHOICES

ROUTER: Final = "tokengrid"


class ServerInfo(msgspec.Struct, frozen=True):
    """TGI's fields; null is what a gateway does not know of its models."""

    model_id: str
    version: str
    model_sha: None = None
    model_pipeline_tag: str = "text-generation"
    max_concurrent_requests: None = None
    max_best_of: int = MAX_CHOICES
    max_stop_sequences: int = MAX_STOP_SEQUENCES
    max_input_tokens: None = None
    max_total_tokens: None = None
    validation_workers: None = None
    max_client_batch_size: int = 1
    router: str = ROUTER
    sha: None = None
    docker_label: None = None


def describe_server(catalogue: Catalogue) -> Answer:
    """`GET /info`: of the model that is asked if a request names none.

    Raises:
        Unavailable: nobody knows of a model yet.
    """
    model = catalogue.find_model(None).model
    if model is None:
        raise Unavailable("no live processor serves a model; ask again later", retry_after=1.0)
    return Answer(encode(ServerInfo(model, version("tokengrid-gateway"))))


def show_health(catalogue: Catalogue) -> Answer:
    """`GET /`: an empty 200 if any model can be asked now, else TGI's 503."""
    if catalogue.models():
        return Answer(b"")
    return Answer(encode(Failure("unhealthy", "healthcheck")), Unavailable.status)
