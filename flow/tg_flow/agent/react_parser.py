"""Model's text -> events: thoughts, calls and the answer, as soon as the text allows to tell them apart.

    Thought: I must know the weather.        any prose; also without the word, where a section follows
    Action: weather                          the name of a tool, alone on its line; else it is prose
    Action Input: {"city": "Paris"}          one JSON object, also fenced, on the same line, or left out
    Final Answer: Take an umbrella.          everything to the end of the text

White space beside a word that structures the text belongs to that word; every other character of the prose arrives
exactly once. What a model invents after its call (an observation, an answer) is passed over. Text that begins without
any of these words is held back until one follows (then it was a thought), it ends, or it is longer than `hold` (then it
is the answer, said as it comes).
"""

from collections.abc import Callable

from tg_flow.agent.events import Closed, Event, Kind, Said
from tg_flow.agent.react_call import ReactCall, call_at
from tg_flow.agent.react_markers import UNDECIDED, Marker, Undecided, marker_at

HOLD = 240
"""Characters of text without a structure that may be thought or answer."""


class ReactParser:
    """Sans-I/O: text in, in pieces of any size; the same events come out however it was cut.

    Args:
        actions: whether calls stand in the text. Without, only thoughts and the answer are told apart.
        hold: how much text without a structure is held back.
    """

    def __init__(self, *, actions: bool = True, hold: int = HOLD) -> None:
        self._actions = actions
        self._hold = hold
        self._text = ""
        self._at = 0
        self._final = False
        self._state: Callable[[], bool] = self._prose
        self._events: list[Event] = []
        self._kind: Kind | None = None
        self._open = False
        self._listening = True
        self._line_start = True
        self._fresh = False
        self._unsaid = ""
        self._space = ""
        self._called = False
        self._call = ReactCall("")

    def feed(self, text: str) -> list[Event]:
        """What is certain now."""
        self._text += text
        self._run()
        return self._taken()

    def end(self) -> list[Event]:
        """The rest: the text has come to its end. The last message is left open."""
        self._run(final=True)
        if self._unsaid:
            self._kind = "answer"
            self._emit("")
        if self._open and self._space:
            self._emit(self._space)
        return self._taken()

    def call_follows(self) -> list[Event]:
        """A call is made outside of the text: what was said so far was a thought."""
        self._run(final=True)
        self._switch("thought")
        self._called = True
        return self._taken()

    def _run(self, *, final: bool = False) -> None:
        self._final = final
        while self._state():
            pass
        if self._at:
            self._text, self._at = self._text[self._at :], 0

    def _taken(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def _prose(self) -> bool:
        """One line, or what there is of it."""
        text, start = self._text, self._at
        if start == len(text):
            return False
        if self._line_start and self._listening:
            found = marker_at(text, start)
            if found == UNDECIDED and not self._final:
                return False
            if isinstance(found, Marker) and (begun := self._begin(found)) is not False:
                return begun is True
        end = text.find("\n", start) + 1
        self._line_start = end > 0
        self._at = end or len(text)
        self._say(text[start : self._at])
        return True

    def _begin(self, marker: Marker) -> bool | None:
        """Go on behind a marker; False = here it is prose, None = that cannot be told yet."""
        match marker.section:
            case "action" if self._actions:
                return self._begin_call(marker.end)
            case "answer" | "observation" if self._called:
                self._state, self._space = self._invented, ""
            case "thought":
                self._switch("thought")
            case "answer":
                self._switch("answer")
                self._listening = False
            case _:
                return False
        self._at = marker.end
        return True

    def _begin_call(self, start: int) -> bool | None:
        found = call_at(self._text, start, final=self._final)
        if found is None:
            return False
        if isinstance(found, Undecided):
            return None
        self._switch("thought")
        self._call, self._at = found
        self._state = self._in_call
        return True

    def _in_call(self) -> bool:
        done = self._call.read(self._text, self._at, final=self._final)
        if done is None:
            return False
        self._at = done.end
        if done.event is not None:
            self._called = True
            self._events.append(done.event)
        self._line_start = True
        self._state = self._prose
        return True

    def _invented(self) -> bool:
        self._at = len(self._text)
        return False

    def _say(self, text: str) -> None:
        """Prose. White space waits for what follows it."""
        if self._fresh:
            text = text.lstrip()
            if not text:
                return
            self._fresh = False
        said = text.rstrip()
        if not said:
            self._space += text
            return
        space, self._space = self._space, text[len(said) :]
        self._emit(space + said)

    def _emit(self, text: str) -> None:
        if self._kind is None:
            self._unsaid += text
            if len(self._unsaid) <= self._hold:
                return
            self._kind, text = "answer", ""
        text, self._unsaid = self._unsaid + text, ""
        self._events.append(Said(self._kind, text))
        self._open = True

    def _switch(self, kind: Kind) -> None:
        """The message so far is complete; what follows is another one."""
        if self._unsaid:
            self._kind = "thought"
            self._emit("")
        if self._open:
            self._events.append(Closed())
        self._kind, self._open, self._fresh, self._line_start, self._space = kind, False, True, False, ""
