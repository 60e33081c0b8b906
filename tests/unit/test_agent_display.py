"""What a person sees of a dialog: one message after the other, and the beginnings of long texts."""

from hypothesis import given
from hypothesis import strategies as st

from tg_cli.agent_renderer import MessageOrder
from tg_cli.agent_screen import Shortened
from tg_client import AgentEvent, Observation, Thought


@st.composite
def dialogs(draw: st.DrawFn) -> list[AgentEvent]:
    """Messages in pieces, side by side; some never end."""
    waiting = {f"m{number}": draw(st.integers(1, 4)) for number in range(draw(st.integers(1, 5)))}
    ending = {name: draw(st.booleans()) or draw(st.booleans()) for name in waiting}
    kinds = {name: draw(st.sampled_from([Thought, Observation])) for name in waiting}
    events: list[AgentEvent] = []
    while waiting:
        name = draw(st.sampled_from(sorted(waiting)))
        waiting[name] -= 1
        events.append(kinds[name](str(len(events)), name, complete=ending[name] and not waiting[name]))
        if not waiting[name]:
            del waiting[name]
    return events


@given(dialogs())
def test_messages_are_shown_one_after_the_other(events: list[AgentEvent]) -> None:
    order = MessageOrder()
    shown = [one for event in events for one in order.take(event)]
    early = len(shown)
    shown += order.rest()
    assert sorted(int(event.content) for event in shown) == list(range(len(events)))
    messages = [event.message_id for event in shown]
    runs = [name for name, before in zip(messages, [None, *messages], strict=False) if name != before]
    assert len(runs) == len(set(runs)), "a message was interrupted by another one"
    for name in runs:
        pieces = [int(event.content) for event in shown if event.message_id == name]
        assert pieces == sorted(pieces)
    if all(any(event.complete for event in events if event.message_id == name) for name in runs):
        assert early == len(events), "something waited although nothing was before it"


def test_the_message_that_is_shown_does_not_wait() -> None:
    order = MessageOrder()
    first, second = Thought("a", "1", complete=False), Thought("b", "2")
    assert list(order.take(first)) == [first]
    assert list(order.take(second)) == []
    assert list(order.take(first)) == [first]
    end = Thought("c", "1")
    assert list(order.take(end)) == [end, second]


@given(st.lists(st.text(alphabet="ab\n", max_size=6), max_size=12), st.integers(1, 20), st.integers(1, 4))
def test_the_beginning_is_the_same_however_the_text_is_cut(pieces: list[str], characters: int, lines: int) -> None:
    whole, text = Shortened(characters, lines), "".join(pieces)
    parts = Shortened(characters, lines)
    shown = "".join(parts.take(piece) for piece in pieces)
    assert shown == whole.take(text)
    assert text.startswith(shown)
    assert len(shown) <= characters
    assert shown.count("\n") < lines
    assert bool(parts.left_out) == bool(text[len(shown) :].strip())


@given(st.lists(st.text(max_size=6)))
def test_nothing_is_left_out_where_all_is_asked_for(pieces: list[str]) -> None:
    shortened = Shortened(None, 1)
    assert [shortened.take(piece) for piece in pieces] == pieces
    assert shortened.left_out == 0
