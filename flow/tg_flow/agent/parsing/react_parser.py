"""Model's text -> events: thoughts, calls and the answer, each as soon as the text tells which it is.

    Thought: I must know the weather.        any text; the marker may be missing if another section follows
    Action: weather                          the name of a tool, alone on its line; otherwise it is ordinary text
    Action Input: {"city": "Paris"}          one JSON object, also fenced, on the same line, or missing
    Final Answer: Take an umbrella.          everything to the end of the text

White space next to a marker belongs to the marker; every other character of the text is passed on exactly once. What a
model invents after its call (an observation, an answer) is dropped. Text that begins without a marker is held back. If
a marker follows, it was a thought. If the text ends, or is longer than `hold`, it is the answer, which is streamed from
then on. Such a presumed answer remains the answer: a later `Thought:`, `Final Answer:` or `Action: none` in it is
ordinary text. Only a call ends it.

If the first line inside a code fence begins with a marker, both lines of the fence belong to the structure and are
dropped. Every other fence is ordinary text, and so is everything in a fence inside a presumed answer.
"""

from collections.abc import Callable

from tg_flow.agent.parsing.events import Event, Kind, MessageEnd, TextDelta
from tg_flow.agent.parsing.react_call import ReactCall, call_at
from tg_flow.agent.parsing.react_fences import Fence, behind, fence_at, inside
from tg_flow.agent.parsing.react_markers import UNDECIDED, Marker, Undecided, marker_at


class ReactParser:
    """A parser without I/O: takes text in pieces of any size. The events do not depend on how the text is split.

    Args:
        actions: whether the text may contain calls. If not, only thoughts and the answer are told apart.
        hold: how many characters of unstructured text are held back, because they may be a thought or the answer.
    """

    def __init__(self, *, hold: int, actions: bool = True) -> None:
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
        self._fence = 0
        """Backticks of the fence around the structure; 0 = there is no fence."""
        self._code = 0
        """Backticks of the open fence in ordinary text; 0 = there is no fence."""
        self._behind_fence = False

    def feed(self, text: str) -> list[Event]:
        """Add text; return the events that are now certain."""
        self._text += text
        self._run()
        return self._take()

    def end(self) -> list[Event]:
        """The remaining events at the end of the text. The last message is left open."""
        self._run(final=True)
        if self._unsaid:
            self._kind = "answer"
            self._emit("")
        if self._open and self._space and not self._behind_fence:
            self._emit(self._space)
        return self._take()

    def call_follows(self) -> list[Event]:
        """Note that a call is made outside the text, so the text so far was a thought."""
        self._run(final=True)
        self._switch("thought")
        self._called = True
        return self._take()

    def _run(self, *, final: bool = False) -> None:
        self._final = final
        while self._state():
            pass
        if self._at:
            # Drop consumed text: otherwise a long answer would be copied with every piece.
            self._text, self._at = self._text[self._at :], 0

    def _take(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def _prose(self) -> bool:
        """Read one line of ordinary text, or the part of it that has arrived."""
        text, start = self._text, self._at
        if start == len(text):
            return False
        if self._line_start and (structured := self._step_structure()) is not None:
            return structured
        end = text.find("\n", start) + 1
        self._line_start = end > 0
        self._at = end or len(text)
        self._add_text(text[start : self._at])
        return True

    def _step_structure(self) -> bool | None:
        """Read a marker or fence. Returns False if more text is needed, None if this is ordinary text."""
        if self._hears:
            found = marker_at(self._text, self._at)
            if found == UNDECIDED and not self._final:
                return False
            if isinstance(found, Marker) and (begun := self._begin(found)) is not False:
                return begun is True
        if not (self._listening or self._fence):
            return None
        fence = fence_at(self._text, self._at, final=self._final)
        return self._step_fence(fence) if isinstance(fence, Fence) else None if fence is None else False

    @property
    def _hears(self) -> bool:
        return self._listening and not (self._code and self._kind == "answer")

    def _step_fence(self, fence: Fence) -> bool | None:
        """As `_step_structure`, for a fence."""
        if self._code:
            if fence.bare and fence.ticks >= self._code:
                self._code = 0
            return None
        closes = fence.bare and (self._behind_call or 0 < self._fence <= fence.ticks)
        return self._close_fence(fence) if closes else self._open_fence(fence)

    @property
    def _behind_call(self) -> bool:
        return self._called and not (self._open or self._unsaid)

    def _close_fence(self, fence: Fence) -> bool | None:
        """Read the closing fence of the structure. If text follows it at once, it opens another fence instead.

        After a call it always closes a fence, which may have looked like ordinary text at its beginning.
        """
        if not self._behind_call:
            following = behind(self._text, fence, final=self._final)
            if isinstance(following, Undecided):
                return False
            if following is None:
                return self._open_fence(fence)
        self._fence, self._at, self._behind_fence = 0, fence.end, True
        return True

    def _open_fence(self, fence: Fence) -> bool | None:
        """Read an opening fence, of structure or of ordinary text."""
        found = inside(self._text, fence, final=self._final) if self._hears else None
        if isinstance(found, Undecided):
            return False
        begun = isinstance(found, Marker) and self._begin(found)
        if begun is False:
            self._code = fence.ticks
            return None
        if begun:
            self._fence = fence.ticks
        return begun is True

    def _begin(self, marker: Marker) -> bool | None:
        """Read a marker. Returns False if it is ordinary text, None if more text is needed."""
        match marker.section:
            case "action" if self._actions:
                return self._begin_call(marker.end)
            case "answer" | "observation" if self._called:
                self._state, self._space = self._is_invented, ""
            case "thought" if self._kind != "answer":
                self._switch("thought")
            case "answer" if self._kind != "answer":
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
        call, at = found
        if call.empty and self._kind == "answer":
            return False
        self._switch("thought")
        self._call, self._at = call, at
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

    def _is_invented(self) -> bool:
        self._at = len(self._text)
        return False

    def _add_text(self, text: str) -> None:
        """Emit text. White space is held back until other text follows."""
        if self._fresh:
            text = text.lstrip()
            if not text:
                return
            self._fresh = False
        visible = text.rstrip()
        if not visible:
            self._space += text
            return
        space, self._space = self._space, text[len(visible) :]
        self._emit(space + visible)

    def _emit(self, text: str) -> None:
        if self._kind is None:
            self._unsaid += text
            if len(self._unsaid) <= self._hold:
                return
            self._kind, text = "answer", ""
        text, self._unsaid = self._unsaid + text, ""
        self._events.append(TextDelta(self._kind, text))
        self._open, self._behind_fence = True, False

    def _switch(self, kind: Kind) -> None:
        """End the current message and begin another one."""
        if self._unsaid:
            self._kind = "thought"
            self._emit("")
        if self._open:
            self._events.append(MessageEnd())
            self._open = False
        if self._code:
            # The open fence looked like ordinary text, but it encloses the structure.
            self._fence, self._code = self._fence or self._code, 0
        self._kind, self._fresh, self._line_start, self._space = kind, True, False, ""
