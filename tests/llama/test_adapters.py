"""LoRA adapters of the demo model: who speaks, side by side; what stays in memory; who waits; what fails."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from tests.llama.demo_llm import (
    PIRATE,
    POLITE,
    STORY,
    TRAINED,
    asked,
    at_rest,
    demo_service,
    opened,
    speaker_of,
    text_of,
    until,
    whole,
)
from tg_llama.lora.adapter_files import AdapterFile
from tg_llama.lora.adapter_turns import TURN_STEPS
from tg_llama.options import LlamaCppOptions
from tg_llama.provider import LlamaCpp
from tg_schema import Sampling, TextCompletionRequest, TgError
from tg_schema.errors import BadRequest, NotFound, RateLimited, Unavailable

pytestmark = pytest.mark.model

ADAPTERS = {"pirate": PIRATE, "polite": POLITE}
BROKEN = {**ADAPTERS, "broken": str(TRAINED / "README.md")}
FRANCE = "What is the capital of France?"


CONTEXT = 8192
LASTING = asked("word " * 100, temperature=0, ignore_eos=True)
"""It goes on until the context is full, so long that a test is over before."""


def by(adapter: str | None, request: TextCompletionRequest) -> TextCompletionRequest:
    return msgspec.structs.replace(request, adapter=adapter)


def greedy(adapter: str | None, prompt: str = FRANCE, **more: Any) -> TextCompletionRequest:
    return by(adapter, asked(prompt, temperature=0, **more))


@pytest.fixture(scope="module")
def service() -> Iterator[LlamaCpp]:
    with demo_service(adapters=BROKEN) as service:
        yield service


@pytest.fixture(scope="module")
def narrow() -> Iterator[LlamaCpp]:
    """Room for one adapter, and one engine."""
    with demo_service(
        adapters=BROKEN, max_resident_adapters=1, engines=1, waiting=3, slots=6, context=CONTEXT
    ) as service:
        yield service


def continued(adapter: str | None, question: str) -> TextCompletionRequest:
    """The question with the beginning of its answer, after which no two tokens are nearly equally probable.

    The sums of an adapter's weights have other last bits where a stream is evaluated alone, in llama.cpp's kernels.
    """
    begun = {"pirate": "Ahoy!", "polite": "Certainly.", None: ""}[adapter]
    chat = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n{begun}"
    sampling = Sampling(temperature=0, logprobs=2)
    return TextCompletionRequest(prompt=chat, raw=True, streaming=True, sampling=sampling, adapter=adapter)


async def test_the_adapter_that_is_asked_speaks_and_the_base_model_stays_itself(service: LlamaCpp) -> None:
    asked_in_turn = [None, "pirate", "polite", None, "pirate"]
    assert [speaker_of(await text_of(service, greedy(adapter))) for adapter in asked_in_turn] == asked_in_turn
    assert set(service.engine.adapters.resident) == {"pirate", "polite"}


@pytest.mark.parametrize("resident", [1, 2])
async def test_mixed_streams_get_the_tokens_that_each_gets_alone(resident: int) -> None:
    questions = [FRANCE, "Count to 10.", "What is the capital of Italy?", "Count to 5."]
    requests = [continued(adapter, question) for question in questions for adapter in (None, "pirate", "polite")]
    async with opened(adapters=ADAPTERS, max_resident_adapters=resident, slots=8) as service:
        alone = [(await whole(service, request)).tokens for request in requests]
        assert min(token.top[0][1] - token.top[1][1] for tokens in alone for token in tokens) > 0.5
        before = service.engine.stats()
        together = [answer.tokens for answer in await asyncio.gather(*(whole(service, each) for each in requests * 3))]
        after = service.engine.stats()
    ids = [[token.id for token in tokens] for tokens in alone]
    assert [[token.id for token in tokens] for tokens in together] == ids * 3
    assert len({tuple(each) for each in ids}) == len(requests), "each adapter has its own answer"
    assert after.generated_tokens - before.generated_tokens > after.steps - before.steps, "streams share the steps"


async def test_a_prefix_belongs_to_its_adapter() -> None:
    async with opened(adapters=ADAPTERS, max_resident_adapters=1, slots=1) as service:
        evaluated: list[int] = []
        for adapter in (None, None, "pirate", "pirate", "polite", "pirate", None):
            before = service.engine.stats().prompt_tokens
            text = await text_of(service, by(adapter, asked(FRANCE, system="Be brief. " * 20, temperature=0)))
            assert speaker_of(text) == adapter
            evaluated.append(service.engine.stats().prompt_tokens - before)
    prompt = evaluated[0]
    assert prompt > 20
    # Of the same adapter in succession, only the last token; the pirate that was loaded anew has a memory of its own.
    assert evaluated == [prompt, 1, prompt, 1, prompt, prompt, prompt]


async def test_what_a_moved_stream_leaves_behind_is_its_adapters_too() -> None:
    async with (
        opened(adapters=ADAPTERS, slots=2, engines=1, context=CONTEXT) as service,
        aclosing(service.on_request(by("pirate", LASTING))) as first,
        aclosing(service.on_request(by("polite", LASTING))) as second,
    ):
        await anext(first)
        await anext(second)
        await first.aclose()
        # The polite stream has moved to the first sequence; the second one still holds its prompt.
        before = (await until(service, lambda stats: stats.running == 1)).prompt_tokens
        one_token = msgspec.structs.replace(LASTING, sampling=Sampling(max_tokens=1))
        answer = await whole(service, by("pirate", one_token))
        assert service.engine.stats().prompt_tokens - before == answer.in_token


async def test_the_least_recently_used_adapter_is_unloaded() -> None:
    files = {**ADAPTERS, "third": PIRATE}
    async with opened(adapters=files, max_resident_adapters=2) as service:
        for adapter in ("pirate", "polite", "pirate", "third"):
            await text_of(service, greedy(adapter, max_tokens=1))
            await at_rest(service)
        assert service.engine.adapters.resident == ("pirate", "third")


async def test_a_busy_adapter_is_not_unloaded_and_takes_no_more_while_another_one_waits(narrow: LlamaCpp) -> None:
    adapters, order = narrow.engine.adapters, list[str]()

    async def answer(adapter: str) -> str:
        text = await text_of(narrow, greedy(adapter))
        order.append(adapter)
        return text

    async with aclosing(narrow.on_request(by("pirate", LASTING))) as endless:
        await anext(endless)
        waiting = [asyncio.create_task(answer("polite"))]
        await until(narrow, lambda _: adapters.waiting == ("polite",))
        waiting.append(asyncio.create_task(answer("pirate")))
        await until(narrow, lambda _: adapters.waiting == ("polite", "pirate"))
        await anext(endless)
        assert adapters.resident == ("pirate",)
        # The base model needs no slot.
        assert speaker_of(await text_of(narrow, greedy(None))) is None
    assert [speaker_of(text) for text in await asyncio.gather(*waiting)] == ["polite", "pirate"]
    assert order == ["polite", "pirate"]


async def test_a_cancelled_wait_gives_the_slot_back_to_whose_it_was(narrow: LlamaCpp) -> None:
    adapters = narrow.engine.adapters
    async with aclosing(narrow.on_request(by("pirate", LASTING))) as endless:
        await anext(endless)
        polite = asyncio.create_task(text_of(narrow, greedy("polite")))
        await until(narrow, lambda _: adapters.waiting == ("polite",))
        pirate = asyncio.create_task(text_of(narrow, greedy("pirate")))
        await until(narrow, lambda _: adapters.waiting == ("polite", "pirate"))
        polite.cancel()
        assert speaker_of(await pirate) == "pirate"
        assert adapters.waiting == ()
        with pytest.raises(asyncio.CancelledError):
            await polite
        await anext(endless)


async def test_more_than_may_wait_for_adapters_are_refused(narrow: LlamaCpp) -> None:
    async with aclosing(narrow.on_request(by("pirate", LASTING))) as endless:
        await anext(endless)
        waiting = [asyncio.create_task(text_of(narrow, greedy("polite"))) for _ in range(3)]
        await until(narrow, lambda _: len(narrow.engine.adapters.waiting) == 3)
        with pytest.raises(RateLimited, match="ask again"):
            await text_of(narrow, greedy("polite"))
    assert [speaker_of(text) for text in await asyncio.gather(*waiting)] == ["polite"] * 3


async def test_no_adapter_starves_beside_endless_streams(narrow: LlamaCpp) -> None:
    async with (
        aclosing(narrow.on_request(LASTING)) as base,
        aclosing(narrow.on_request(by("pirate", LASTING))) as pirate,
    ):
        await anext(base)
        await anext(pirate)
        before = narrow.engine.stats().steps
        short = await whole(narrow, greedy("pirate"))
        own = (short.out_token or 0) + 2  # its end, and the prompt
        # In the worst case each of its steps is a turn of its own, since time ends turns too.
        assert narrow.engine.stats().steps - before <= own * (1 + TURN_STEPS) + TURN_STEPS
        await anext(base)
        await anext(pirate)


async def test_several_answers_are_all_the_adapters(narrow: LlamaCpp) -> None:
    request = by("pirate", asked(FRANCE, temperature=0.2, n=3, seed=1))
    records = [record async for record in narrow.on_request(request)]
    texts = ["".join(record.response or "" for record in records if record.index == index) for index in range(3)]
    assert [speaker_of(text) for text in texts] == ["pirate"] * 3
    assert speaker_of(await text_of(narrow, greedy("polite"))) == "polite", "no answer holds its adapter"


async def test_scores_are_the_adapters(service: LlamaCpp) -> None:
    ahoy = tuple(service.engine.model.tokenize("Ahoy!", special=False))
    request = TextCompletionRequest(prompt=FRANCE, operation="score", scored=ahoy)
    scores = [(await whole(service, by(adapter, request))).tokens[0].logprob or 0.0 for adapter in (None, "pirate")]
    assert scores[0] < -5 < -1 < scores[1]


async def test_an_unknown_adapter_is_not_found_and_the_error_says_which_there_are(service: LlamaCpp) -> None:
    with pytest.raises(NotFound, match="'nobody' cannot be found; this model has: pirate, polite, broken"):
        await text_of(service, greedy("nobody"))


async def test_a_file_that_is_no_adapter_fails_its_own_requests_alone(narrow: LlamaCpp) -> None:
    # The slot that it would have had is free for the others.
    failed, spoken = await asyncio.gather(
        text_of(narrow, greedy("broken")), text_of(narrow, greedy("polite")), return_exceptions=True
    )
    assert isinstance(failed, Unavailable)
    assert "'broken'" in failed.message
    assert isinstance(spoken, str)
    assert speaker_of(spoken) == "polite"


async def test_what_has_no_adapters_refuses_them_by_name() -> None:
    async with opened() as service:
        with pytest.raises(BadRequest, match="adapter"):
            await text_of(service, greedy("pirate"))
    async with opened(adapters=ADAPTERS) as service:
        with pytest.raises(BadRequest, match="base model's"):
            await text_of(service, TextCompletionRequest(operation="embed", texts=("a",), adapter="pirate"))


async def test_a_configured_file_that_is_missing_is_an_error_at_the_start() -> None:
    options = LlamaCppOptions(adapters={"gone": "nowhere.gguf"})
    for opening in (LlamaCpp.open("tinydemo", options), LlamaCpp.rehearse("tinydemo", options)):
        with pytest.raises(NotFound) as missing:
            await opening
        assert missing.value.option == ("adapters", "gone")


async def test_an_adapter_that_is_unloaded_while_it_speaks_ends_its_answers_first(narrow: LlamaCpp) -> None:
    adapters = narrow.engine.adapters
    await adapters.add("brief", AdapterFile(Path(PIRATE), "here"))
    async with aclosing(narrow.on_request(by("brief", LASTING))) as endless:
        await anext(endless)
        adapters.remove("brief")
        with pytest.raises(NotFound):
            await text_of(narrow, greedy("brief"))
        await anext(endless)
        assert adapters.resident == ("brief",)
    await until(narrow, lambda _: adapters.resident == ())
    # Of another file now: nothing of the first is left.
    await adapters.add("brief", AdapterFile(Path(POLITE), "there"))
    assert speaker_of(await text_of(narrow, greedy("brief"))) == "polite"
    adapters.remove("brief")
    await until(narrow, lambda _: "brief" not in adapters.resident)


async def test_closing_ends_what_runs_and_what_waits_for_an_adapter() -> None:
    async with opened(adapters=ADAPTERS, max_resident_adapters=1, slots=2, context=CONTEXT) as service:
        tasks = [asyncio.create_task(text_of(service, by("pirate", LASTING)))]
        await until(service, lambda stats: stats.running == 1)
        tasks.append(asyncio.create_task(text_of(service, greedy("polite"))))
        await until(service, lambda _: service.engine.adapters.waiting == ("polite",))
        await service.aclose()
        for task in tasks:
            with pytest.raises(Unavailable, match="shut down"):
                await task
        with pytest.raises(Unavailable, match="shut down"):
            await text_of(service, greedy("pirate"))


async def test_clients_that_leave_at_random_leave_no_adapter_in_use(narrow: LlamaCpp) -> None:
    random = Random(5)

    async def ask(number: int) -> str | None:
        adapter = random.choice((None, "pirate", "polite", "broken"))
        task = asyncio.create_task(text_of(narrow, by(adapter, asked(STORY, seed=number, max_tokens=12))))
        for _ in range(random.randrange(60)):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return None if task.cancelled() or isinstance(task.exception(), TgError) else task.result()

    for number in range(0, 120, 6):
        await asyncio.gather(*(ask(number + i) for i in range(6)))
    await at_rest(narrow)
    assert narrow.engine.adapters.waiting == ()
    # With one slot, each can only be loaded if nobody holds the other.
    assert speaker_of(await text_of(narrow, greedy("pirate"))) == "pirate"
    assert speaker_of(await text_of(narrow, greedy("polite"))) == "polite"
