"""Tables of models that are edited while they serve: who answers, from when on, and what ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, nullcontext
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.fakes.ending_bus import EndingBus
from tests.flow.edited_models import (
    FLOWS,
    LIVELY,
    PROVIDER,
    SERVED,
    OneWord,
    Served,
    serving,
    table,
    write,
)
from tests.until import until
from tg_base.bus.memory import MemoryBus
from tg_base.config.reader import parse_config
from tg_base.protocol import HeartbeatTiming
from tg_base.server import ServeContext
from tg_flow.providers.model_processors import ModelProcessors
from tg_schema import TextCompletionRequest
from tg_schema.errors import BusError, Unavailable

pytestmark = pytest.mark.usefixtures("fresh_models")


@pytest.fixture
async def it(models_file: Path) -> AsyncIterator[Served]:
    async with serving(models_file) as served:
        yield served


def serve_models(bus: EndingBus, timing: HeartbeatTiming) -> ModelProcessors:
    return ModelProcessors(ServeContext(parse_config(SERVED, Path("tg.toml")), bus, lambda _: nullcontext(), timing))


async def test_new_requests_go_to_the_edited_model_and_running_ones_end_with_the_old(it: Served) -> None:
    async with it.clients["f"].stream(TextCompletionRequest(prompt="wait", streaming=True)) as records:
        said = (await anext(records)).response
        write(it.file, SERVED.replace("old", "new"))
        assert (await it.told("models.in_force"))["begun"] == ["m"]
        assert [await it.say() for _ in range(20)] == ["new new"] * 20
        assert await it.say("g") == "other other"
        await asyncio.sleep(5 * LIVELY.dead_after)
        assert OneWord.closed == []
        OneWord.gate.set()
        said += "".join([record.response async for record in records])
        assert said == "old old"
    await until(lambda: OneWord.closed == ["old"])
    assert OneWord.opened == ["old", "other", "new"]
    assert (await it.told("config.in_force"))["keys"] == ["models.m.options.word"]


async def test_a_model_that_cannot_be_opened_leaves_all_as_it_was(it: Served) -> None:
    write(it.file, table("m", "mended") + table("n", "x", "fails = true") + FLOWS)
    refused = (await it.told("models.refused"))["reason"]
    assert refused == f"{it.file}, line 9: the weights are broken"
    await until(lambda: "mended" in OneWord.closed)
    assert [await it.say(flow) for flow in "fg"] == ["old old", "other other"]
    write(it.file, table("m", "mended") + table("n", "too") + FLOWS)
    await it.told("models.in_force")
    assert [await it.say(flow) for flow in "fg"] == ["mended mended", "too too"]


async def test_a_provider_with_a_defect_leaves_all_as_it_was(it: Served) -> None:
    write(it.file, SERVED.replace('word = "old"', 'word = "defect"'))
    refused = (await it.told("models.refused"))["reason"]
    assert refused == f'{it.file}, line 2: provider "{PROVIDER}" has a defect; the log says which'
    assert await it.say() == "old old"


async def test_a_replaced_model_that_cannot_be_closed_leaves_the_others_serving(models_file: Path) -> None:
    write(models_file, SERVED.replace("old", "unclosable"))
    async with serving(models_file) as it:
        write(models_file, SERVED)
        assert (await it.told("model.close_failed"))["model"] == "m"
        write(models_file, SERVED.replace("other", "further"))
        await until(lambda: OneWord.closed == ["unclosable", "other"])
        assert [await it.say(flow) for flow in "fg"] == ["old old", "further further"]


async def test_a_model_that_can_neither_begin_nor_be_closed_leaves_all_as_it_was() -> None:
    inner = MemoryBus()
    bus = EndingBus(inner)
    models = serve_models(bus, LIVELY)
    with capture_logs() as logs:
        async with asyncio.timeout(20), models.serve():
            before = models.processors
            bus.refusing = True
            (await models.prepare(parse_config(SERVED.replace("old", "unclosable"), Path("tg.toml"))))()
            await until(lambda: any(line["event"] == "models.refused" for line in logs))
            assert models.processors == before
    assert [line["model"] for line in logs if line["event"] == "model.close_failed"] == ["m"]
    await inner.aclose()


async def test_a_mistake_in_the_options_refuses_the_file(it: Served) -> None:
    write(it.file, SERVED.replace("word =", "wrod =", 1))
    reason = (await it.told("config.refused"))["reason"]
    assert "wrod" in reason
    assert reason.startswith(f"{it.file}, line 4: ")
    assert await it.say() == "old old"


async def test_what_waits_for_a_restart_stays(it: Served) -> None:
    write(
        it.file,
        SERVED.replace("[models.m.options]", "queue = 3\n[models.m.options]", 1),
    )
    assert (await it.told("config.needs_restart"))["keys"] == ["models.m.queue"]
    assert OneWord.opened == ["old", "other"]


async def test_a_flow_may_be_bound_to_a_model_that_is_added(it: Served) -> None:
    write(it.file, table("added", "fresh") + SERVED.replace('model = "n"', 'model = "added"'))
    assert (await it.told("models.in_force"))["begun"] == ["added"]
    assert [await it.say(flow) for flow in "fg"] == ["old old", "fresh fresh"]
    assert set((await it.told("config.in_force"))["keys"]) == {"models.added", "flows.g.text-completion.model"}
    await until(lambda: OneWord.closed == ["other"])


async def test_a_model_that_loses_a_flow_is_opened_anew(it: Served) -> None:
    write(it.file, table("m", "old") + FLOWS.replace('"n"', '"m"'))
    await it.told("models.in_force")
    assert [await it.say(flow) for flow in "fg"] == ["old old"] * 2
    await until(lambda: sorted(OneWord.closed) == ["old", "other"])


async def test_a_replaced_model_that_loses_a_flow_leaves_its_other_flows_to_the_new_one(models_file: Path) -> None:
    flows = FLOWS.replace('"n"', '"m"')
    write(models_file, table("m", "old") + flows)
    async with serving(models_file) as it:
        assert [await it.say(flow) for flow in "fg"] == ["old old"] * 2
        queues = [it.clients[flow].route.request for flow in "fg"]
        write(it.file, table("m", "new") + flows.split("g.", maxsplit=1)[0])
        await it.told("models.in_force")
        await until(lambda: len(it.requestor.presence.serving(queues[0])) == 1)
        # Nobody else reads the queue of the flow that went: the old model does for a little longer.
        assert len(it.requestor.presence.serving(queues[1])) == 1
        assert [await it.say() for _ in range(20)] == ["new new"] * 20
        await until(lambda: OneWord.closed == ["old"])


async def test_a_flow_comes_with_its_model_and_goes_with_it(it: Served) -> None:
    write(it.file, table("added", "fresh") + SERVED + 'h.text-completion.model = "added"')
    assert (await it.told("models.in_force"))["begun"] == ["added"]
    it.know("h")
    assert await it.say("h") == "fresh fresh"
    it.logs.clear()
    write(it.file, SERVED)
    assert (await it.told("models.in_force"))["ended"] == ["added"]
    assert (await it.told("config.in_force"))["keys"] == ["models.added", "flows.h"]
    assert [await it.say(flow) for flow in "fg"] == ["old old", "other other"]
    await until(lambda: OneWord.closed == ["fresh"])
    with pytest.raises(Unavailable, match="no live processor serves text-completion of flow h"):
        await it.say("h")


async def test_a_request_that_waits_in_the_queue_of_a_flow_is_answered_when_the_flow_is_bound_to_a_route(
    models_file: Path,
) -> None:
    text = SERVED.replace('word = "old"', 'word = "old"\ncapacity = 1')
    write(models_file, text)
    asked = TextCompletionRequest(prompt="wait", streaming=True)
    async with serving(models_file) as it:
        f = it.clients["f"]
        # Now it knows the requestor's clock, and takes no request that has to wait for a slot.
        assert await it.say() == "old old"
        async with f.stream(asked) as first, f.stream(asked) as second:
            await anext(first)
            bound = text.replace('f.text-completion.model = "m"', 'f.text-completion.model = "r"')
            write(it.file, bound + "[routes.r]\nmodels = ['n']")
            assert (await it.told("models.in_force"))["ended"] == ["m"]
            assert [await it.say("g") for _ in range(20)] == ["other other"] * 20
            OneWord.gate.set()
            assert "".join([record.response async for record in second]) == "old old"


async def test_a_flow_that_is_given_to_plain_peers_ends_its_model(it: Served) -> None:
    write(it.file, table("m", "new") + FLOWS.replace('g.text-completion.model = "n"', "g.text-completion.plain = true"))
    assert (await it.told("models.in_force"))["ended"] == ["m", "n"]
    await until(lambda: sorted(OneWord.closed) == ["old", "other"])
    assert await it.say() == "new new"


async def test_a_model_that_is_being_opened_is_not_rehearsed_again(it: Served) -> None:
    hanging = SERVED.replace("old", "hangs")
    write(it.file, hanging)
    await until(lambda: OneWord.opening[2:] == ["hangs"])
    write(it.file, hanging + '[prompts.templates.t]\nprompt = "x"\n')
    await until(lambda: "t" in it.watcher.config.prompts.templates)
    assert OneWord.rehearsed == ["hangs"]


async def test_an_edit_replaces_a_model_whose_opening_hangs(it: Served) -> None:
    write(it.file, table("m", "begun") + table("n", "hangs") + FLOWS)
    await until(lambda: OneWord.opening[2:] == ["begun", "hangs"])
    write(it.file, table("m", "begun") + table("n", "mended") + FLOWS)
    await it.told("models.in_force")
    assert [await it.say(flow) for flow in "fg"] == ["begun begun", "mended mended"]
    await until(lambda: sorted(OneWord.closed) == ["begun", "old", "other"])


async def test_leaving_ends_old_and_new_ones(models_file: Path) -> None:
    waits = TextCompletionRequest(prompt="wait", streaming=True)
    async with serving(models_file) as it, it.clients["f"].stream(waits) as records:
        await anext(records)
        write(it.file, SERVED.replace("old", "new"))
        await it.told("models.in_force")
    assert sorted(OneWord.closed) == ["new", "old", "other"]


async def serve_for_ever(bus: EndingBus) -> None:
    """Serve models of which one is edited, then let the new processor's queue be lost."""
    timing = HeartbeatTiming(interval=0.05, give_up=0.2)
    models = serve_models(bus, timing)
    async with models.serve():
        before = models.processors
        (await models.prepare(parse_config(SERVED.replace("old", "new"), Path("tg.toml"))))()
        await until(lambda: models.processors != before and OneWord.closed == ["old"])
        bus.refusing = True
        bus.end(bus.opened[-1])
        await asyncio.Event().wait()


async def test_an_edited_model_whose_queue_is_lost_ends_the_process_as_any_other() -> None:
    async with aclosing(MemoryBus()) as bus, asyncio.timeout(20):
        with pytest.raises(BusError, match="has refused the subscription"):
            await serve_for_ever(EndingBus(bus))
    assert sorted(OneWord.closed) == ["new", "old", "other"]
