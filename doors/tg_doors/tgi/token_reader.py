"""Records of a streamed answer -> its tokens, one by one, each with its piece of the text; and how it ended."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tg_doors.tgi.answer_shapes import Ending, TokenTexts, name_ending
from tg_gateway.dialects import Tally
from tg_gateway.dialects.chat import too_many
from tg_schema import TextCompletionResponse, Token
from tg_schema.answer_collector import MAX_ANSWER_BYTES
from tg_schema.completion import NO_TOKEN_ID
from tg_schema.errors import TooLarge

UNKNOWN_TOKEN: Final = Token(NO_TOKEN_ID, "")
"""The id in place of unknown tokens of a text."""
NO_MORE_TOKEN: Final = Token(NO_TOKEN_ID, "", special=True)
"""The id in place of an unknown end token."""


class Step(NamedTuple):
    """A token, and the text that it adds to the answer; a control token's text is its name, and adds nothing."""

    token: Token
    text: str


_NOTHING: Final = Step(NO_MORE_TOKEN, "")


class TokenReader(Tally):
    """Reads the records of one answer, and adds them up.

    The texts of the steps whose tokens are not special are the answer's text.

    Attributes:
        end: the answer's last step: its end token, if the provider reports it. Known after the last record.
    """

    def __init__(self) -> None:
        super().__init__()
        self.end = _NOTHING
        self._text: list[str] = []
        self._texts = TokenTexts()
        self._decoded = self._shown = self._listed = 0

    @property
    def text(self) -> str:
        """The whole text so far."""
        return "".join(self._text)

    @property
    def generated_tokens(self) -> int:
        """How many tokens were generated, including a reported end token: TGI counts it, and providers may not."""
        return max(self.usage.out_token or 0, self._listed)

    def name_ending(self, stops: Sequence[str]) -> Ending:
        """TGI's `finish_reason`; as `name_ending`."""
        return name_ending(self.finish_reason, self.stopped_by, self.text, stops)

    def read(self, record: TextCompletionResponse) -> list[Step]:
        """The steps of a record.

        Raises:
            TooLarge: the answer exceeds the size that is kept for its last event.
            ProtocolError: the record is of another answer.
        """
        if record.index:
            raise too_many()
        self.add(record)
        text, tokens = record.response or "", record.tokens
        # Where the provider sends no tokens, each of its records counts as one for the client.
        steps = self._split(text, tokens) if tokens else [Step(UNKNOWN_TOKEN, text)] if text else []
        self._shown += len(text)
        # A list: the whole text is needed once, in the last event.
        self._text.append(text)
        if self._shown > MAX_ANSWER_BYTES:
            raise TooLarge(f"the answer is larger than {MAX_ANSWER_BYTES} characters; set max_new_tokens")
        return steps

    def _split(self, text: str, tokens: Sequence[Token]) -> list[Step]:
        """Each token with its piece of the text; together they have all of it."""
        steps, start = [], 0
        ordinary = sum([not token.special for token in tokens])
        self._listed += len(tokens)
        for token in tokens:
            if self.end.token is not NO_MORE_TOKEN:
                steps.append(self.end)
                self.end = _NOTHING
            if token.special:
                # It is the answer's end, unless another token follows.
                self.end = Step(token, token.text)
                continue
            ordinary -= 1
            self._decoded += len(self._texts.decode(token))
            # A token is sent with its first character; text of it that was held back comes with the next token.
            stop = min(len(text), max(start, self._decoded - self._shown)) if ordinary else len(text)
            steps.append(Step(token, text[start:stop]))
            start = stop
        if start < len(text):
            steps.append(Step(UNKNOWN_TOKEN, text[start:]))
        return steps


class LastStep:
    """Holds back the step with which an answer reaches its maximum length.

    Args:
        most: the most tokens of the answer; None = not limited, and no step is held back.
    """

    def __init__(self, most: int | None) -> None:
        self._left = most
        self._held: Step | None = None

    def pass_on(self, steps: list[Step]) -> list[Step]:
        """Take new steps; returns the steps that can be sent, the one held back before among them."""
        if self._left is None or not steps:
            return steps
        before = self.release()
        # Control tokens count too: they are steps only if another token follows. The end token is not a step.
        self._left -= sum([step.token.id != NO_TOKEN_ID for step in steps])
        # Below zero the provider has exceeded the limit; then the last token is unknown.
        if self._left == 0 and steps[-1].token.id != NO_TOKEN_ID:
            self._held = steps.pop()
        return before + steps

    def release(self) -> list[Step]:
        """Return the step that was held back, if any; it is not the last one."""
        held, self._held = self._held, None
        return [] if held is None else [held]

    def end(self, last: Step) -> tuple[list[Step], Step]:
        """The steps before the last one that were not sent yet, and the last step.

        Args:
            last: the end token, or the id `NO_TOKEN_ID` if the provider reports none.
        """
        held = self.release()
        if held and last.token.id == NO_TOKEN_ID:
            return [], held[0]
        return held, last
