"""Responses that wait, of keys that share a model: what one of them may not ask for now holds up none of the others."""

from msgspec.structs import replace

from tests.flow.background_asking import poll
from tests.flow.waiting_gateways import FLEX, ask, count_returned, count_waited, make_key, open_gateways
from tests.until import until
from tg_gateway.access import Limits

NARROW, WIDE = "narrow-token", "wide-token"
MANY = 66


async def test_a_key_over_its_limits_does_not_keep_others_waiting() -> None:
    keys = (make_key(NARROW, 1), make_key(WIDE))
    async with open_gateways() as it:
        client = await it.open_gateway(replace(FLEX, keys=keys))
        narrow, wide, before = client.with_options(api_key=NARROW), client.with_options(api_key=WIDE), count_returned()
        work = await it.occupy(wide)
        names = [await ask(narrow, "narrow") for _ in range(MANY)]
        other = await ask(wide, "other")
        for _ in range(3):
            it.llm.steps.release()
        await work
        # It is behind all of them, and they wait for a minute.
        assert (await poll(wide, other.id)).status == "completed"
        assert it.llm.order == ["work", "narrow", "other"]
        # One of them has found out. The next one was in hand already.
        assert count_returned() - before <= 2
        assert {(await narrow.responses.retrieve(each.id)).status for each in names[1:]} == {"queued"}


async def test_what_was_given_back_for_a_while_comes_again() -> None:
    async with open_gateways() as it:
        client = await it.open_gateway(
            replace(FLEX, keys=(make_key(NARROW, 1), make_key(WIDE))), Limits(flex_pause=0.2)
        )
        narrow, wide, before = (
            client.with_options(api_key=NARROW),
            client.with_options(api_key=WIDE),
            count_waited("dropped"),
        )
        work = await it.occupy(wide)
        names = [(await ask(narrow, "narrow")).id for _ in range(MANY)]
        for _ in range(2):
            it.llm.steps.release()
        await work
        assert (await poll(narrow, names[0])).status == "completed"
        for name in names[1:]:
            await narrow.responses.cancel(name)
        # None is forgotten, wherever it was.
        await until(lambda: count_waited("dropped") - before == len(names) - 1)
