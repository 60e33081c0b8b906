"""The packaged file -> a model that engines can run, by NumPy alone: its weights and its byte-pair vocabulary."""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from tg_llama.core import CONTROL_TOKEN, Adapter, EngineSizes, SamplerSettings, VectorContext
from tg_llama.demo.demo_context import DemoContext
from tg_llama.demo.demo_layers import DemoLayers
from tg_llama.demo.demo_sampler import DemoSampler
from tg_llama.demo.gguf_file import GgufFile
from tg_llama.grammar import TokenGrammars
from tg_llama.models import DEMO_MODEL
from tg_schema.errors import BadRequest

_CONTROL, _SHOWN = 3, 4
"""Types of tokens in the file: control tokens have no text; added tokens have text that is not merged from pairs."""
_WORDS = re.compile(
    r"'(?:[sdmt]|ll|ve|re)| ?[^\W\d_]{1,300}| ?\d{1,300}| ?(?:[^\s\w]|_){1,300}|\s{1,300}(?!\S)|\s{1,300}"
)
"""GPT-2's words, except that signs such as ½ count as letters, not as numbers. No learned token joins them to others.

A longer word is split, since the work for a word grows with the square of its length.
"""
_PRINTED = [*range(33, 127), *range(161, 173), *range(174, 256)]
_HIDDEN = [byte for byte in range(256) if byte not in _PRINTED]
_LETTERS = {**{byte: chr(byte) for byte in _PRINTED}, **{byte: chr(256 + at) for at, byte in enumerate(_HIDDEN)}}
"""Byte -> the character that represents it in the file."""
_BYTES = {letter: byte for byte, letter in _LETTERS.items()}
_KNOWN_WORDS, _KNOWN_CHARACTERS = 4096, 32


class BytePairs:
    """The vocabulary: text <-> tokens, by byte pairs merged in the order in which they were learned. Thread-safe.

    Attributes:
        pieces: the bytes of each token; b"" for control tokens.
        end_tokens: the tokens that end an answer.
    """

    def __init__(self, file: GgufFile) -> None:
        values = {name.removeprefix("tokenizer."): value for name, value in file.values.items()}
        self._names: list[str] = values["ggml.tokens"]
        self._types: list[int] = values["ggml.token_type"]
        self._ids = {name: token for token, name in enumerate(self._names)}
        self._ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(values["ggml.merges"])}
        self.begin: int | None = values["ggml.bos_token_id"]
        self.begin_text = self._names[values["ggml.bos_token_id"]]
        self.end_text = self._names[values["ggml.eos_token_id"]]
        self.end_tokens = frozenset({values["ggml.eos_token_id"], values["ggml.padding_token_id"]})
        self.chat_template: str | None = values["chat_template"]
        self.pieces: Sequence[bytes] = [self._piece(token) for token in range(len(self._names))]
        self.longest_piece = max(map(len, self.pieces))
        self._shown = self._marks({_SHOWN})
        self._special = self._marks({_SHOWN, _CONTROL})
        self._known_word = lru_cache(_KNOWN_WORDS)(self._cut_word)

    def _piece(self, token: int) -> bytes:
        name, kind = self._names[token], self._types[token]
        if kind in {_CONTROL, _SHOWN}:
            return name.encode() if kind == _SHOWN else b""
        return bytes([_BYTES[letter] for letter in name])

    def _marks(self, kinds: set[int]) -> re.Pattern[str]:
        names = [name for name, kind in zip(self._names, self._types, strict=True) if kind in kinds]
        return re.compile(f"({'|'.join(map(re.escape, names))})")

    def attributes(self, token: int) -> int:
        """The flags of `token`, with the values of llama.h."""
        return CONTROL_TOKEN if self._types[token] == _CONTROL else 0

    def special_text(self, token: int) -> str:
        """The name of `token`."""
        return self._names[token]

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        """The tokens of `text`; with `special`, names of control tokens become control tokens."""
        parts = (self._special if special else self._shown).split(text)
        # Every second part is the name of a token.
        return [token for at, part in enumerate(parts) for token in ([self._ids[part]] if at % 2 else self._cut(part))]

    def _cut(self, text: str) -> list[int]:
        return [token for word in _WORDS.findall(text) for token in self._word(word)]

    def _word(self, word: str) -> list[int]:
        return self._known_word(word) if len(word) <= _KNOWN_CHARACTERS else self._cut_word(word)

    def _cut_word(self, word: str) -> list[int]:
        letters = [_LETTERS[byte] for byte in word.encode("utf-8", "replace")]
        # Each round merges all places of one pair, so a word of any length takes at most as many rounds as merges.
        while pair := min(set(pairwise(letters)) & self._ranks.keys(), key=self._ranks.__getitem__, default=None):
            letters = _merge(letters, pair)
        return [self._ids[letter] for letter in letters]


class DemoModel(BytePairs):
    """See `core.Model`."""

    writes = True
    divisible = False
    dimensions = 0

    def __init__(self) -> None:
        file = GgufFile(DEMO_MODEL)
        super().__init__(file)
        self.vocabulary = len(self.pieces)
        self.context_length = file.size("context_length")
        self.grammars = TokenGrammars(self.pieces, self.end_tokens)
        self._layers = DemoLayers(file)

    def open_context(self, *, sequences: int, tokens: int, batch: int, threads: int) -> DemoContext:
        """See `core.Model`."""
        return DemoContext(self._layers, sequences)

    def make_sampler(
        self, settings: SamplerSettings, longest: int, grammar: str | None, prompt: Sequence[int]
    ) -> DemoSampler:
        """See `core.Model`."""
        return DemoSampler(settings, self.grammars.start(grammar) if grammar else None, self.end_tokens)

    def open_vectors(self, sizes: EngineSizes) -> VectorContext:
        """See `core.Model`."""
        raise BadRequest("the demo model gives no vectors: ask another model")

    def load_adapter(self, name: str, path: Path) -> Adapter:
        """See `core.Model`."""
        raise BadRequest("the demo model takes no adapters: ask another model")

    def close(self) -> None:
        """See `core.Model`: Python frees the memory."""


def _merge(letters: list[str], pair: tuple[str, ...]) -> list[str]:
    merged: list[str] = []
    for letter in letters:
        if merged and (merged[-1], letter) == pair:
            merged[-1] += letter
        else:
            merged.append(letter)
    return merged
