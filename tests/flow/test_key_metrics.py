"""What a key has asked and used is counted by its name: requests at every door, tokens of each call of a model."""

import pytest
from prometheus_client import REGISTRY

from tests.flow.narrow_gateway import DOORS, digest_of, narrow_gateway
from tests.until import until
from tg_base.config import ApiKey, GatewayConfig

CONFIG = GatewayConfig(port=0, drain=0.05, keys=(ApiKey(name="counted", sha256=digest_of("counted")),))


def read(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def tokens(name: str, **labels: str) -> tuple[float, ...]:
    return tuple(read(name, direction=direction, **labels) for direction in ("in", "out"))


@pytest.mark.parametrize("door", DOORS)
async def test_requests_and_tokens_of_a_key(door: str) -> None:
    async with narrow_gateway(capacity=8, config=CONFIG) as it:
        asked = read("tg_key_requests_total", key="counted", outcome="ok")
        used, provider = tokens("tg_key_tokens_total", key="counted"), tokens("tg_tokens_total", model=it.llm.model)
        await it.ask(door, 3, key="counted")
        await until(lambda: read("tg_key_requests_total", key="counted", outcome="ok") == asked + 1)
        now, counted = tokens("tg_key_tokens_total", key="counted"), tokens("tg_tokens_total", model=it.llm.model)
        grown = [after - before for after, before in zip(now, used, strict=True)]
        assert grown == [after - before for after, before in zip(counted, provider, strict=True)]
        assert min(grown) > 0
