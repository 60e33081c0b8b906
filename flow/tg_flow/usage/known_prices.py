"""Records of usage -> their costs, by the price list of the library genai-prices. It makes no network requests."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Final

from tg_schema.usage_record import UsageRecord

LISTED_AS: Final[Mapping[str, str]] = {
    "anthropic": "anthropic",
    "azure-openai": "azure",
    "bedrock": "aws",
    "cohere": "cohere",
    "google-ai-studio": "google",
    "mistral": "mistral",
    "openai": "openai",
    "vertexai-claude": "google",
    "vertexai-gemini": "google",
}
"""Our names of providers -> the list's names. The list's own search would take any server with a compatible API for
OpenAI's, and charge OpenAI's prices for a local model."""
NANO_DOLLARS: Final = 10**9


def is_installed() -> bool:
    """Whether the library is installed; it is not imported."""
    return find_spec("genai_prices") is not None


def find_costs(records: Sequence[UsageRecord]) -> list[int | None]:
    """The cost of each record in nano-dollars; None = the provider, the model, or the usage is unknown.

    Call it in a worker process: the list takes 96 MiB and a second of CPU, then 0.2 ms for each record.
    """
    return [_find_cost(record) for record in records]


def _find_cost(record: UsageRecord) -> int | None:
    from genai_prices import Usage, calc_price  # noqa: PLC0415 - optional, and large

    counts, completes = record.usage, record.operation == "completion"
    if counts.in_token is None or (counts.out_token is None and completes):
        return None
    usage = Usage(
        input_tokens=counts.in_token,
        output_tokens=counts.out_token,
        cache_read_tokens=counts.cached_token,
        cache_write_tokens=counts.cache_write_token,
    )
    try:
        asked = datetime.fromtimestamp(record.began_at / 1000, UTC) if record.began_at else None
        name, provider = record.upstream_model or record.model, LISTED_AS[record.provider]
        price = calc_price(usage, name, provider_id=provider, genai_request_timestamp=asked)
    except (LookupError, ValueError, OverflowError, OSError):
        # The model is not listed, the counts contradict each other, or the time is beyond any calendar.
        return None
    return round(price.total_price * NANO_DOLLARS)
