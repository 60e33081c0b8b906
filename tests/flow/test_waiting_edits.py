"""Responses that wait while names are edited: what they ask for stays what it was, whichever gateway takes them."""

from msgspec.structs import replace

from tests.flow.background_asking import poll
from tests.flow.open_gateway import TEXTS
from tests.flow.waiting_gateways import FLEX, ask, open_gateways
from tg_base.protocol import RoutePlan
from tg_gateway.access import Limits


async def test_what_an_alias_meant_is_asked_by_a_gateway_that_has_not_the_alias() -> None:
    async with open_gateways() as it:
        one, other = await it.open_gateway(replace(FLEX, aliases={"nick": it.llm.model})), await it.open_gateway()
        work = await it.occupy(other)
        made = await ask(one, "made", model="nick")
        await it.gateways[0].aclose()
        for _ in range(2):
            it.llm.steps.release()
        await work
        answer = await poll(other, made.id)
        assert (answer.status, answer.output_text, answer.model) == ("completed", "0 ", made.model)


async def test_what_asks_for_a_model_that_a_gateway_has_not_waits_and_lets_others_pass() -> None:
    async with open_gateways() as it:
        one = await it.open_gateway()
        other = await it.open_gateway(limits=Limits(attempt_pause=0.0, flex_pause=0.05))
        plans = {"r": RoutePlan("r", (TEXTS[0],))}
        it.edited[0].prepare(FLEX, plans=plans)()
        work = await it.occupy(other)
        made = await ask(one, "made", model="r")
        await it.gateways[0].aclose()
        later = await ask(other, "later")
        for _ in range(3):
            it.llm.steps.release()
        await work
        assert (await poll(other, later.id)).status == "completed"
        assert (await other.responses.retrieve(made.id)).status == "queued"
        it.edited[1].prepare(FLEX, plans=plans)()
        assert (await poll(other, made.id)).status == "completed"
        assert it.llm.order == ["work", "later", "made"]
