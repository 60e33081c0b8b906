"""System and prompt text -> the tokens of a chat, whose only control tokens are the template's own."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from tg_llama.chat.chat_template import ChatTemplate, Hole, Layout
from tg_llama.chat.name_guard import NameGuard, Plain
from tg_llama.chat.tool_template import ToolTemplate
from tg_llama.core import CONTROL_TOKEN, Model
from tg_schema import Message, Tool
from tg_schema.errors import BadRequest, ContextLengthExceeded
from tg_schema.features import describe_missing

_UNKNOWN, _STRIP_LEFT, _STRIP_RIGHT = 1, 128, 256
"""Flags `LLAMA_TOKEN_ATTR_*` in llama.h."""

_Part = int | str | Hole


class PromptTokenizer:
    """Tokenizes the control tokens of a template's layouts once, and each request's text between them.

    Between two control tokens, the template's and the request's text are tokenized as one text, as in training. The
    name of a control token in a request stays ordinary text.

    Attributes:
        tools: how the template renders tools, calls and results; None if it cannot.
    """

    def __init__(self, model: Model) -> None:
        """Raises: Unavailable, if the model's chat template does not work."""
        template = ChatTemplate(model.chat_template, model.begin_text, model.end_text)
        self._model = model
        self._template = template
        # Tokens without text: control tokens and the unknown token.
        unseen = [model.special_text(token) for token, piece in enumerate(model.pieces) if not piece]
        names = {"bos_token": model.begin_text, "eos_token": model.end_text}
        self._guard = NameGuard(unseen)
        self.tools = ToolTemplate.of(model.chat_template, names, self._guard)
        self._short = {system: self._compile(template.conversation(1, system=system)) for system in (False, True)}

    @property
    def knows_history(self) -> bool:
        """Whether a conversation can have more than one turn."""
        return self._template.between is not None

    def tokens(self, system: str | None, prompt: str, limit: int, earlier: Sequence[str] = ()) -> tuple[int, ...]:
        """The prompt's tokens; takes milliseconds for a text of 10,000 characters.

        Args:
            system: the system text.
            prompt: the user's last text.
            limit: the most tokens, including those of the answer.
            earlier: the texts of the previous turns, alternating between user and assistant; an even number.

        Raises:
            ContextLengthExceeded: the text cannot fit into `limit` tokens. Most texts that are too long are detected
                only later.
        """
        self._check_size(len(system or "") + len(prompt) + sum(map(len, earlier)), limit)
        tokens: list[int] = []
        text = ""
        texts = {"system": iter([system or ""]), "prompt": iter([*earlier[::2], prompt]), "answer": iter(earlier[1::2])}
        for part in self._parts(1 + len(earlier), system=bool(system)):
            if isinstance(part, int):
                tokens.extend(self._cut(text))
                tokens.append(part)
                text = ""
            elif isinstance(part, str):
                text += part
            else:
                filling = next(texts[part.name])
                text += filling.strip() if part.trimmed else filling
        tokens.extend(self._cut(text))
        return tuple(tokens)

    def pieces_with_marks(self) -> Sequence[bytes]:
        """The bytes of each of the model's tokens, including the control tokens that mark tool calls."""
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
        """The tokens of a conversation with tools, rendered as a whole; takes milliseconds. Needs `tools`.

        Raises:
            BadRequest: the template cannot express the conversation.
            ContextLengthExceeded: as `tokens`.
        """
        if self.tools is None:
            raise BadRequest(describe_missing(("tools",)))
        self._check_size(len(system) + sum([len(turn.text) for turn in turns]), limit)
        text = self.tools.render(system, turns, offered)
        self._check_size(len(text), limit)
        parts: list[_Part] = []
        for piece in self._guard.reveal(text):
            parts.extend([piece.text] if isinstance(piece, Plain) else self._split(piece))
        return tuple([part for part in self._cut_ahead(self._with_begin(parts)) if isinstance(part, int)])

    def raw_tokens(self, text: str, limit: int) -> tuple[int, ...]:
        """The tokens of a text that is the whole prompt; the names of control tokens in it are these tokens.

        The model's begin token comes first, unless the text begins with its name. Raises: ContextLengthExceeded, as
        `tokens`.
        """
        self._check_size(len(text), limit)
        tokens = self._model.tokenize(text, special=True)
        begin = self._model.begin
        return tuple(tokens if begin is None or tokens[:1] == [begin] else [begin, *tokens])

    def _check_size(self, size: int, limit: int) -> None:
        # A cheap bound, before a huge text is tokenized: no token stands for more bytes than the longest piece.
        if size > limit * self._model.longest_piece:
            raise ContextLengthExceeded.of_counts(None, limit)

    def _parts(self, turns: int, *, system: bool) -> tuple[_Part, ...]:
        return self._short[system] if turns < 2 else self._compile(self._template.conversation(turns, system=system))

    def _cut(self, text: str) -> list[int]:
        return self._model.tokenize(text, special=False) if text else []

    def _compile(self, layout: Layout) -> tuple[_Part, ...]:
        parts: list[_Part] = []
        for part in layout:
            parts.extend([part] if isinstance(part, Hole) else self._split(part))
        return tuple(self._cut_ahead(self._with_begin(parts)))

    def _with_begin(self, parts: list[_Part]) -> list[_Part]:
        begin = self._model.begin
        # Many templates write the begin token themselves; a second one makes the answers worse.
        return parts if begin is None or parts[:1] == [begin] else [begin, *parts]

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

    def _cut_ahead(self, parts: list[_Part]) -> Iterator[_Part]:
        """Tokenize the texts between two control tokens without a request's text in advance."""
        for is_token, run in groupby(parts, lambda part: isinstance(part, int)):
            group = list(run)
            texts = [part for part in group if isinstance(part, str)]
            if is_token or len(texts) < len(group):
                yield from group
            else:
                yield from self._cut("".join(texts))
