"""Our figures -> their names in OpenTelemetry's conventions for generative AI, where they mean the same.

The names are those of the conventions that `span_names` pins, as OpenTelemetry's exporter for Prometheus writes them.
The bounds of the buckets of times are our own. A gateway's figures have this project as the provider, as its clients
do.
"""

from typing import Final

from tg_base.telemetry.metric import Label
from tg_base.telemetry.span_names import CHAT, EMBEDDINGS, INVOKE_AGENT

PROVIDER_NAME: Final = "tokengrid"
TOKEN_BUCKETS: Final = tuple(float(4**power) for power in range(14))
"""The published bounds of CLIENT_TOKENS."""
SERVER_FIRST: Final = "gen_ai_server_time_to_first_token_seconds"
SERVER_DURATION: Final = "gen_ai_server_request_duration_seconds"
CLIENT_TOKENS: Final = "gen_ai_client_token_usage"
OPERATION: Final = Label("gen_ai_operation_name", "`chat`, `embeddings`, `invoke_agent`, or our word")
PROVIDER: Final = Label("gen_ai_provider_name", f"`{PROVIDER_NAME}`; of calls of a provider its name here")
TOKEN_TYPE: Final = Label("gen_ai_token_type", "`input`, `output`")
_MODEL: Final = "gen_ai_request_model"
OPERATIONS: Final = {
    "text-completion": CHAT,
    "completion": CHAT,
    "embed": EMBEDDINGS,
    "agent": INVOKE_AGENT,
}
"""Our services, and operations of a model -> the published operations; others keep their names."""


def rename(labels: tuple[Label, ...]) -> tuple[Label, ...]:
    """Our labels, of which the first is the service -> the published ones. Those without a name there keep theirs."""
    rest = (label._replace(name=_MODEL) if label.name == "model" else label for label in labels[1:])
    return OPERATION, PROVIDER, *rest


def translate(values: tuple[str, ...]) -> tuple[str, ...]:
    """Values of our labels -> values of the published labels."""
    service, *rest = values
    return OPERATIONS.get(service, service), PROVIDER_NAME, *rest
