"""Records of usage -> their costs: by the configuration's prices, or else by the providers' published prices."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Final

import structlog

from tg_base.config import PriceConfig
from tg_base.runtime import WorkerPool
from tg_flow.usage.known_prices import LISTED_AS
from tg_schema import TgError
from tg_schema.usage_record import UsageRecord

log = structlog.get_logger()

PriceList = Callable[[Sequence[UsageRecord]], list[int | None]]
NANO_DOLLARS_PER_TOKEN: Final = 1000
"""Nano-dollars for a token at a price of one dollar for a million tokens."""


class Prices:
    """Finds the costs of calls, in whole nano-dollars; None = unknown.

    Args:
        configured: prices by the model's name, here or at its provider.
        price_list: finds costs in the installed list of providers' prices; runs in a worker process. None = no list is
            installed.
    """

    def __init__(self, configured: Mapping[str, PriceConfig], price_list: PriceList | None) -> None:
        self._configured = configured
        self._price_list = price_list
        self._worker = WorkerPool()
        self._told_absence = False

    def replace(self, configured: Mapping[str, PriceConfig]) -> None:
        """Use these prices from the next record on. Records that are already counted keep their cost."""
        self._configured = configured

    async def find_costs(self, records: Sequence[UsageRecord]) -> list[int | None]:
        """The cost of each record: the cost that its writer knew, or else by the model's price; None = not known."""
        costs = [record.cost for record in records]
        listed = []
        for place, record in enumerate(records):
            price = self._configured.get(record.model) or self._configured.get(record.upstream_model)
            if record.cost is None and price is not None:
                costs[place] = multiply(price, record)
            elif record.cost is None and record.provider in LISTED_AS:
                listed.append(place)
        if listed:
            found = await self._ask_list([records[place] for place in listed])
            for place, cost in zip(listed, found, strict=True):
                costs[place] = cost
        return costs

    async def aclose(self) -> None:
        """End the worker process."""
        await self._worker.aclose()

    async def _ask_list(self, records: list[UsageRecord]) -> list[int | None]:
        if self._price_list is None:
            if not self._told_absence:
                self._told_absence = True
                reason = 'only [prices] of the configuration apply; for more: pip install "tokengrid-flow[prices]"'
                log.warning("usage.no_price_list", reason=reason)
            return [None] * len(records)
        try:
            return await self._worker.call(self._price_list, records)
        except TgError as error:
            # Do not retry: the same records could fail again, which would delay all others.
            log.error("usage.price_list_failed", reason=error.message)
            return [None] * len(records)


def multiply(price: PriceConfig, record: UsageRecord) -> int | None:
    """The cost of a record by a configured price; None = its usage is unknown, so it is not free."""
    if not any((price.input, price.output, price.cached_input, price.cache_write)):
        return 0
    total, output = record.usage.in_token, record.usage.out_token
    if record.operation != "completion":
        output = output or 0
    if total is None or output is None:
        return None
    cached = min(record.usage.cached_token or 0, total)
    written = min(record.usage.cache_write_token or 0, total - cached)
    parts = (
        (total - cached - written, price.input),
        (cached, price.input if price.cached_input is None else price.cached_input),
        (written, price.input if price.cache_write is None else price.cache_write),
        (output, price.output),
    )
    # Use the decimal digits of the configuration, not the nearest binary fraction.
    return round(sum(tokens * Decimal(str(dollars)) for tokens, dollars in parts) * NANO_DOLLARS_PER_TOKEN)
