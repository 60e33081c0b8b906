"""What the configuration file says of limits: read, passed on to routes, and mistakes named with file and line."""

from pathlib import Path

import pytest

from tg_base.config.reader import parse_config
from tg_base.llm import ProviderOptions
from tg_flow.providers.openai import OpenAiCompatible
from tg_flow.providers.openai.provider import OpenAiOptions
from tg_schema.errors import BadRequest

FILE = Path("tg.toml")
KEY = f'[[gateway.keys]]\nname = "a"\nsha256 = "{"0" * 64}"\n'
FLOW = '[flows.f]\ntext-completion = { model = "m" }\nprompt = {}\n'
MODEL = '[models.m]\nprovider = "openai"\n'


def test_limits_are_read() -> None:
    text = KEY + "requests_per_minute = 60\nstreams = 4\ntokens_per_minute = 10_000\n[gateway]\nreserve_tokens = 500\n"
    gateway = parse_config(text, FILE).gateway
    (key,) = gateway.keys
    assert (key.requests_per_minute, key.streams, key.tokens_per_minute, gateway.reserve_tokens) == (60, 4, 10_000, 500)
    assert parse_config(KEY, FILE).gateway.keys[0].streams == 0


def test_a_models_queue_bounds_its_text_completion() -> None:
    config = parse_config(MODEL + "queue = 0\n" + FLOW, FILE)
    assert config.routes("text-completion")[0].queue == 0
    assert config.routes("prompt")[0].queue is None
    assert parse_config(MODEL + FLOW, FILE).routes("text-completion")[0].queue is None


def test_a_providers_capacity() -> None:
    assert OpenAiOptions(capacity=7).capacity == 7
    assert ProviderOptions().capacity is None


async def test_a_capacity_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none-needed")
    for options, capacity in ((OpenAiOptions(capacity=7), 7), (OpenAiOptions(), 256)):
        service = await OpenAiCompatible.open("m", options)
        assert service.capacity == capacity
        await service.aclose()


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (KEY + "streams = -1", 4, "gateway.keys.0.streams must be a whole number >= 0"),
        (KEY + 'requests_per_minute = "60"', 4, "gateway.keys.0.requests_per_minute must be a whole number, not text"),
        (KEY + "tokens_per_minute = 1.5", 4, "gateway.keys.0.tokens_per_minute must be a whole number"),
        (KEY + "stream = 1", 4, 'unknown field "stream" in gateway.keys.0; did you mean "streams"?'),
        (
            KEY + "streams = 1\n" + KEY + "streams = 2",
            8,
            'keys named "a" share their limits; give each the same streams',
        ),
        (KEY + "streams = 1\n" + KEY, 5, 'keys named "a" share their limits'),
        (
            KEY + KEY.replace('"a"', '"b"'),
            6,
            'the key "a" has this token already; give "b" one of its own',
        ),
        ("[gateway]\nreserve_tokens = 0", 2, "gateway.reserve_tokens must be a whole number >= 1"),
        (MODEL + "queue = -1", 3, "models.m.queue must be a whole number >= 0"),
        (MODEL + 'queue = "long"', 3, "models.m.queue must be a whole number, not text"),
    ],
)
def test_a_mistake_is_named_with_file_and_line(text: str, line: int, words: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse_config(text, FILE)
    assert refused.value.message.startswith(f"tg.toml, line {line}: ")
    assert words in refused.value.message
