"""Models that are slow to open, hang, or cannot be opened: the others serve, and the log names it."""

import asyncio
from pathlib import Path

import pytest

from tests.flow.edited_models import (
    FLOWS,
    FLOWS_OF_ONE,
    LAZY_WITHOUT_FILE,
    SERVED,
    OneWord,
    serving,
    table,
    write,
)
from tests.until import until
from tg_schema.errors import Unavailable

pytestmark = pytest.mark.usefixtures("fresh_models")


async def test_models_are_opened_side_by_side(models_file: Path) -> None:
    write(models_file, table("m", "meets") + table("n", "meets") + FLOWS)
    async with asyncio.timeout(20), serving(models_file) as it:
        assert await it.say() == "meets meets"


async def test_the_path_of_a_lazy_model_that_is_missing_is_for_the_log_alone(models_file: Path) -> None:
    write(models_file, LAZY_WITHOUT_FILE + FLOWS_OF_ONE)
    async with serving(models_file) as it:
        with pytest.raises(Unavailable, match=r"^the model cannot be opened; the log of its processor says why$"):
            await it.say()
        assert "nowhere.gguf" in (await it.told("model.failed"))["reason"]


async def test_a_model_that_cannot_be_opened_at_the_start_leaves_the_others_serving(
    models_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OneWord, "broken", {"old"})
    async with serving(models_file, retry=0.01) as it:
        failed = await it.told("model.failed")
        assert (failed["model"], failed["reason"]) == ("m", f"{models_file}, line 2: the weights are gone")
        assert await it.say("g") == "other other"
        # It refuses no edit of another model, and is tried again.
        write(models_file, SERVED.replace("other", "new"))
        assert (await it.told("models.in_force"))["begun"] == ["n"]
        OneWord.broken.clear()
        await until(lambda: any(line.get("begun") == ["m"] for line in it.logs))
        assert [await it.say(flow) for flow in "fg"] == ["old old", "new new"]


async def test_a_refused_edit_does_not_keep_a_model_from_recovering(
    models_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OneWord, "broken", {"old", "worse"})
    async with serving(models_file, retry=0.01) as it:
        await it.told("model.failed")
        write(models_file, SERVED.replace("other", "worse"))
        await it.told("models.refused")
        OneWord.broken.discard("old")
        async with asyncio.timeout(20):
            while (await it.say("f") if "old" in OneWord.opened else "") != "old old":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert await it.say("g") == "other other"
        assert "old" not in OneWord.closed


async def test_where_no_model_can_be_opened_the_first_error_ends_the_start(
    models_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OneWord, "broken", {"old", "other"})
    with pytest.raises(Unavailable, match=r"line 2: the weights are gone"):
        async with serving(models_file):
            pass


async def test_leaving_cancels_an_opening_that_hangs(models_file: Path) -> None:
    async with asyncio.timeout(20), serving(models_file) as it:
        write(it.file, SERVED.replace("other", "hangs"))
        await until(lambda: OneWord.opening[2:] == ["hangs"])
    assert sorted(OneWord.closed) == ["old", "other"]


async def test_a_lazy_model_is_opened_for_its_first_request_and_stays(models_file: Path) -> None:
    write(
        models_file,
        table("m", "late").replace("[models.m.options]", "lazy = true\n[models.m.options]") + table("n", "x") + FLOWS,
    )
    async with serving(models_file) as it:
        assert (OneWord.rehearsed, OneWord.opened) == ([], ["x"])
        for _ in range(2):
            assert await it.say() == "late late"
        assert (OneWord.opened, OneWord.closed) == (["x", "late"], [])
    assert sorted(OneWord.closed) == ["late", "x"]


async def test_a_lazy_model_that_cannot_be_opened_is_named_in_the_log(models_file: Path) -> None:
    """With its place in the file, which is not for whoever asks; the next one who asks has it tried again."""
    write(
        models_file, table("m", "late").replace("[models.m.options]", "lazy = true\n[models.m.options]") + FLOWS_OF_ONE
    )
    OneWord.broken.add("late")
    async with serving(models_file) as it:
        with pytest.raises(Unavailable, match=r"^the weights are gone$"):
            await it.say()
        OneWord.broken.clear()
        failed = await it.told("model.failed")
        assert (failed["model"], failed["reason"]) == ("m", f"{models_file}, line 2: the weights are gone")
        assert await it.say() == "late late"
