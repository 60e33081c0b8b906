"""Where LMI's clients find us: their base URL is the gateway's, without a path."""

from typing import Final

from tg_gateway.dialects import Mount
from tg_gateway.dialects.lmi.descriptions import PARTS
from tg_gateway.dialects.lmi.dialect import LMI

LMI_MOUNTS: Final[tuple[Mount, ...]] = (
    Mount("POST", "/invocations", LMI, "generate", large=True),
    Mount("POST", "/predictions/{model}", LMI, "generate", large=True),
    Mount("POST", "/predictions/{model}/{version}", LMI, "generate", large=True),
    Mount("POST", "/models/{model}/invoke", LMI, "generate", large=True),
    # Of SageMaker's clients, whose address can be set; an endpoint is a model.
    Mount("POST", "/endpoints/{model}/invocations", LMI, "generate", large=True),
    Mount("POST", "/endpoints/{model}/invocations-response-stream", LMI, PARTS, large=True),
    # SageMaker's health check has no key.
    Mount("GET", "/ping", LMI, "ping", keyless=True),
)
