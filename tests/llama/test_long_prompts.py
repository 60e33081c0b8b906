"""Prompts beside answers: a long one stops nobody's tokens, and a beginning that many have is evaluated once."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, aclosing, closing

import pytest

from tests.llama.demo_llm import ENDLESS, STORY, asked, at_rest, demo_service, text_of
from tg_llama.core.sampler_settings import SamplerSettings
from tg_llama.engine.batch import Batch
from tg_llama.engine.generation import Generation, Job
from tg_llama.engine.prefix_cache import PrefixCache
from tg_llama.engine.slot import Slot
from tg_llama.models import DEMO_MODEL
from tg_llama.native.context import Context
from tg_llama.native.model import Model
from tg_llama.provider import LlamaCpp

pytestmark = pytest.mark.model

BATCH = 64
LONG = "What is a river? " * 300
COMMON = "Answer briefly, and never say more than you know. " * 10
COMMON_TOKENS, OWN_TOKENS = 100, 40
"""Of COMMON at least, and of what is not common at most."""
ANSWERS = {
    "What is the capital of Italy?": "The capital of Italy is Rome.",
    "What is the capital of France?": "The capital of France is Paris.",
    "Count to 3.": "1, 2, 3",
    "What is 2 + 3?": "2 + 3 = 5",
}


@pytest.fixture(scope="module")
def service() -> Iterator[LlamaCpp]:
    with demo_service(slots=8, engines=1, context=2048, batch=BATCH) as service:
        yield service


async def test_beside_a_long_prompt_every_step_has_a_token_of_each_answer(service: LlamaCpp) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(3):
            answer = await stack.enter_async_context(aclosing(service.on_request(ENDLESS)))
            await anext(answer)
        before = service.engine.stats()
        long = await stack.enter_async_context(aclosing(service.on_request(asked(LONG, max_tokens=2))))
        await anext(long)
        after = service.engine.stats()
    steps, prompt = after.steps - before.steps, after.prompt_tokens - before.prompt_tokens
    generated = after.generated_tokens - before.generated_tokens
    assert prompt >= 1500
    assert prompt <= (steps + 1) * (BATCH - 3)
    # The prompt's own two, and each reading of the totals may stand within a step.
    assert generated == pytest.approx(3 * steps, abs=2 + 2 * 3)
    await at_rest(service)


async def test_streams_that_begin_alike_at_once_evaluate_the_beginning_once(service: LlamaCpp) -> None:
    await text_of(service, asked("x", max_tokens=1))
    before = service.engine.stats().prompt_tokens
    requests = [asked(question, system=COMMON, temperature=0, max_tokens=9) for question in ANSWERS] * 2
    assert await asyncio.gather(*[text_of(service, request) for request in requests]) == [*ANSWERS.values()] * 2
    assert min([await service.count_tokens(request) for request in requests]) > COMMON_TOKENS
    evaluated = service.engine.stats().prompt_tokens - before
    assert evaluated < COMMON_TOKENS + len(requests) * OWN_TOKENS, "not once for each"


CHATS = [word * 300 for word in ("What is a river? ", "Count to three. ", "Rome is a city. ")]


async def test_chats_that_take_turns_keep_their_prefixes(service: LlamaCpp) -> None:
    requests = [asked(chat, temperature=0, max_tokens=2) for chat in CHATS]
    first = [await text_of(service, request) for request in requests]
    before = service.engine.stats().prompt_tokens
    for _ in range(2):
        assert [await text_of(service, request) for request in requests] == first
    assert service.engine.stats().prompt_tokens - before == 2 * len(requests), "more than the last token of each"


async def slot_of(model: Model, sequence: int, *prompt: int) -> Slot:
    job = Job(prompt=prompt, settings=SamplerSettings(temperature=0, top_k=0, top_p=1, seed=0), max_tokens=5)
    return Slot(model, Generation(job, model.pieces), 512, sequence)


async def test_a_slot_follows_the_one_that_evaluates_its_beginning_and_goes_on_without_it() -> None:
    with closing(Model(DEMO_MODEL)) as model, closing(four_sequences(model)) as context:
        prefixes, common = PrefixCache(context, 4, divisible=True), model.tokenize(COMMON, special=False)[:100]
        slots = [await slot_of(model, number, *common, 300 + number) for number in range(4)]
        with ExitStack() as stack:
            for number, slot in enumerate(slots):
                stack.callback(slot.close)
                prefixes.begin(slot, slots[:number])
            leader, second, *others = slots
            assert [slot.follows for slot in slots] == [None, leader, leader, leader]
            evaluate(context, leader, 60)
            assert prefixes.let_go_on(slots) == [leader]
            leader.generation.cancel()
            prefixes.remember(leader)
            slots = slots[1:]
            assert prefixes.let_go_on(slots) == [second]
            assert [slot.evaluated for slot in slots] == [60, 0, 0], "what was evaluated by then is not lost"
            assert [slot.follows for slot in others] == [second, second]
            evaluate(context, second, 40)
            assert prefixes.let_go_on(slots) == slots
            assert [slot.evaluated for slot in slots] == [100] * 3
            evaluate(context, others[0], 1)
            copied = list(context.logits(0))
            context.keep(2, 0)
            others[0].evaluated = 0
            for count in (60, 40, 1):  # in the same parts: a row's last digits depend on how many are evaluated with it
                evaluate(context, others[0], count)
            assert copied == pytest.approx(list(context.logits(0)), abs=1e-3), "the memory is that of the prompt"


async def test_a_stream_that_takes_the_place_of_another_leaves_its_tokens_in_memory() -> None:
    with closing(Model(DEMO_MODEL)) as model, closing(four_sequences(model)) as context, ExitStack() as stack:
        prefixes, tokens = PrefixCache(context, 4, divisible=True), model.tokenize(LONG, special=False)[:310]
        prompts = (tokens[:300], tokens[10:], tokens[:300])
        ended, moved, again = [
            await slot_of(model, number, *prompt) for number, prompt in zip((0, 1, 1), prompts, strict=True)
        ]
        for slot in (ended, moved, again):
            stack.callback(slot.close)
        for slot in (ended, moved):
            prefixes.begin(slot, [])
            for _ in range(5):
                evaluate(context, slot, 60)
        expected = list(context.logits(59))
        prefixes.remember(ended)
        prefixes.move(moved, 0)
        prefixes.begin(again, [moved])
        assert again.evaluated == 299
        context.keep(moved.sequence, 240)
        moved.evaluated = 240
        evaluate(context, moved, 60)
        assert list(context.logits(59)) == pytest.approx(expected, abs=1e-3), "the memory is its own"


async def test_as_many_chats_as_there_are_sequences_keep_their_prefixes() -> None:
    with closing(Model(DEMO_MODEL)) as model, closing(four_sequences(model)) as context:
        prefixes, tokens = PrefixCache(context, 4, divisible=True), model.tokenize(LONG, special=False)
        chats = [tokens[first : first + 300] for first in range(4)]
        for turn in range(3):
            # Each goes on from where it was.
            for number, chat in enumerate(chats):
                slot = await slot_of(model, 0, *chat, *[300 + number] * turn)
                with closing(slot):
                    prefixes.begin(slot, [])
                    assert slot.evaluated == (299 + turn if turn else 0)
                    while slot.evaluated < len(slot.tokens):
                        evaluate(context, slot, min(100, len(slot.tokens) - slot.evaluated))
                    prefixes.remember(slot)


def four_sequences(model: Model) -> Context:
    return Context(model, sequences=4, tokens=512, batch=128, threads=1)


def evaluate(context: Context, slot: Slot, count: int) -> None:
    batch = Batch.of([slot], count, count, 4)
    assert context.decode(batch.tokens, batch.positions, batch.sequences, batch.outputs) == 0


async def test_a_prompt_begins_with_what_another_sequence_remembers(service: LlamaCpp) -> None:
    first = asked(STORY, system=COMMON, temperature=0, max_tokens=5)
    async with aclosing(service.on_request(ENDLESS)) as endless:
        await anext(endless)
        text = await text_of(service, first)  # in the second sequence
    before = (await at_rest(service)).prompt_tokens
    assert await text_of(service, first) == text  # in the first one
    assert service.engine.stats().prompt_tokens - before == 1
