"""System and prompt text -> the tokens of a chat, whose only control tokens are the template's own."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from tg_llama.chat.chat_template import ChatTemplate
from tg_llama.chat.name_guard import NameGuard, Plain
from tg_llama.core import CONTROL_TOKEN, Model
from tg_schema import Message, Tool
from tg_schema.errors import ContextLengthExceeded

_UNKNOWN, _STRIP_LEFT, _STRIP_RIGHT = 1, 128, 256
"""Flags `LLAMA_TOKEN_ATTR_*` in llama.h."""


class PromptTokenizer:
    """Tokenizes a rendered template: its control tokens, and the text between them.

    Between two control tokens, the template's and the request's text are tokenized as one text, as in training. The
    name of a control token in a request stays ordinary text.

    Attributes:
        tools: how the template renders tools, calls and results; None if it cannot.
        knows_history: whether a conversation can have more than one turn.
    """

    def __init__(self, model: Model) -> None:
        """Raises: Unavailable, if the model's chat template does not work."""
        self._model = model
        # Tokens without text: control tokens and the unknown token.
        unseen = [model.special_text(token) for token, piece in enumerate(model.pieces) if not piece]
        names = {"bos_token": model.begin_text, "eos_token": model.end_text}
        self._template = ChatTemplate(model.chat_template, names, NameGuard(unseen))
        self.tools = self._template.tools
        self.knows_history = self._template.knows_history

    def tokens(self, system: str, texts: Sequence[str], limit: int) -> tuple[int, ...]:
        """The prompt's tokens; takes milliseconds for a text of 10,000 characters.

        Args:
            system: the system text; "" = none.
            texts: the texts of the conversation, alternating between user and assistant; the last one is the user's.
            limit: the most tokens, including those of the answer.

        Raises:
            BadRequest: the template cannot express the conversation.
            ContextLengthExceeded: the text cannot fit into `limit` tokens. Most texts that are too long are detected
                only later.
        """
        self._check_size(len(system) + sum(map(len, texts)), limit)
        return self._join(self._template.render(system, texts))

    def pieces_with_marks(self) -> Sequence[bytes]:
        """The bytes of each of the model's tokens; control tokens that mark tool calls have their names."""
        pieces = list(self._model.pieces)
        for mark, token in self.find_marks().items():
            pieces[token] = mark.encode()
        return pieces

    def find_marks(self) -> dict[str, int]:
        """The marks of tool calls that are control tokens."""
        marks = self.tools.form.marks if self.tools is not None else ()
        cut = {mark: self._model.tokenize(mark, special=True) for mark in marks}
        return {mark: ids[0] for mark, ids in cut.items() if len(ids) == 1 and not self._model.pieces[ids[0]]}

    def tool_tokens(
        self, system: str, turns: Sequence[Message], offered: Sequence[Tool], limit: int
    ) -> tuple[int, ...]:
        """The tokens of a conversation with tools, calls or results; takes milliseconds. Raises as `tokens`."""
        self._check_size(len(system) + sum([len(turn.text) for turn in turns]), limit)
        pieces = list(self._template.render_tools(system, turns, offered))
        self._check_size(sum([len(piece) for piece in pieces if isinstance(piece, str)]), limit)
        return self._join(pieces)

    def raw_tokens(self, text: str, limit: int) -> tuple[int, ...]:
        """The tokens of a text that is the whole prompt; names of control tokens in it become these tokens.

        The model's begin token comes first, unless the text begins with its name. Raises: ContextLengthExceeded, as
        `tokens`.
        """
        self._check_size(len(text), limit)
        tokens = self._model.tokenize(text, special=True)
        begin = self._model.begin
        return tuple(tokens if begin is None or tokens[:1] == [begin] else [begin, *tokens])

    def _check_size(self, size: int, limit: int) -> None:
        # A cheap check before a huge text is tokenized: no token stands for more bytes than the longest one.
        if size > limit * self._model.longest_piece:
            raise ContextLengthExceeded.of_counts(None, limit)

    def _join(self, pieces: Iterable[str | Plain]) -> tuple[int, ...]:
        parts: list[int | str] = []
        for piece in pieces:
            parts.extend([piece.text] if isinstance(piece, Plain) else self._split(piece))
        begin = self._model.begin
        # Many templates write the begin token themselves; a second one makes the answers worse.
        tokens = [] if begin is None or parts[:1] == [begin] else [begin]
        for kind, run in groupby(parts, type):
            group = list(run)
            cut = self._model.tokenize("".join(map(str, group)), special=False) if kind is str else group
            tokens += [token for token in cut if isinstance(token, int)]
        return tuple(tokens)

    def _split(self, text: str) -> Iterator[int | str]:
        """The control tokens in a template's text, and the text between them."""
        strip = False
        for token in self._model.tokenize(text, special=True):
            flags = self._model.attributes(token)
            if not flags & (_UNKNOWN | CONTROL_TOKEN):
                continue
            before, name, text = text.partition(self._model.special_text(token))
            if not name:  # the tokenizer changed the text, so the token stands for something else
                text = before
                continue
            before = before.lstrip() if strip else before
            before = before.rstrip() if flags & _STRIP_LEFT else before
            strip = bool(flags & _STRIP_RIGHT)
            if before:
                yield before
            yield token
        text = text.lstrip() if strip else text
        if text:
            yield text
