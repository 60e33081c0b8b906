"""GGUF files -> a model's weights, vocabulary and chat template, and the weights of LoRA adapters."""

import ctypes
import threading
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from tg_llama.core import OwnPooling
from tg_llama.grammar import TokenGrammars
from tg_llama.native.library import hold_interpreter_lock, native
from tg_llama.native.model_load import ModelLoad
from tg_schema.errors import BadRequest, Unavailable

_tokenize = hold_interpreter_lock(native.llama_tokenize)
_piece = hold_interpreter_lock(native.llama_token_to_piece)

_POOLINGS: dict[str, OwnPooling] = {"2": "cls", "3": "last"}
"""`LLAMA_POOLING_TYPE_*` of llama.h, as the file's metadata spell it."""

LONG_TEXT_CHARACTERS = 4096
"""Bytes of text from which on tokenizing releases the interpreter lock."""

MAX_PIECE_BYTES = 1024
"""Bytes of one token's text that are read; no vocabulary has longer tokens."""


class Weights:
    """A loaded GGUF model. Any thread may call all methods but `close`.

    Attributes:
        context_length: tokens of context that the model was trained with.
        size: bytes of its weights.
        writes: whether it generates text; otherwise it is an encoder, which only gives vectors.
        dimensions: numbers in the vector of a token.
        pooling: the pooling that its author chose.
        vocabulary: the number of its tokens.
        pieces: the bytes of each token, b"" for control tokens.
        longest_piece: bytes of the longest one.
        end_tokens: the tokens that end an answer.
        grammars: its compiled grammars.
        divisible: whether a sequence's memory can be cut after a common prefix and reused.
        chat_template: the file's own Jinja template; None if it has none.
    """

    def __init__(self, path: Path, *, weights: bool = True, load: ModelLoad | None = None) -> None:
        """Load `path`. Blocks, for seconds with large models.

        Args:
            path: the file.
            weights: False reads only the metadata, which is quick, and checks that the file is complete.
            load: the load, which others can abort while this blocks; None = nobody aborts it.

        Raises:
            Unavailable: the file cannot be read, or is not a model that llama.cpp can run; or the load was aborted.
        """
        self._lock = threading.Lock()
        self.pointer = (load or ModelLoad()).run(path, weights=weights)
        self.writes = self._writes_text()
        if not self.writes and not self._encodes_text():
            self.close()
            raise Unavailable(f"{path.name} is no model that writes text token by token: use another file")
        self.vocab = native.llama_model_get_vocab(self.pointer)
        self.context_length: int = native.llama_model_n_ctx_train(self.pointer)
        self.size: int = native.llama_model_size(self.pointer)
        self.dimensions: int = native.llama_model_n_embd_out(self.pointer)
        self.pooling = _POOLINGS.get(self._metadata("pooling_type"), "mean")
        self.vocabulary: int = native.llama_vocab_n_tokens(self.vocab)
        buffer = ctypes.create_string_buffer(MAX_PIECE_BYTES)
        self.pieces = [self._read_piece(token, buffer) for token in range(self.vocabulary)]
        self.longest_piece = max(map(len, self.pieces))
        is_end = hold_interpreter_lock(native.llama_vocab_is_eog)
        self.end_tokens = frozenset(token for token in range(self.vocabulary) if is_end(self.vocab, token))
        self.grammars = TokenGrammars(self.pieces, self.end_tokens)
        self.divisible: bool = not (
            native.llama_model_n_swa(self.pointer)
            or native.llama_model_is_recurrent(self.pointer)
            or native.llama_model_is_hybrid(self.pointer)
        )
        template = native.llama_model_chat_template(self.pointer, None)
        self.chat_template: str | None = template.decode("utf-8", "replace") if template else None

    def _writes_text(self) -> bool:
        return bool(
            native.llama_model_has_decoder(self.pointer)
            and not native.llama_model_has_encoder(self.pointer)
            and not native.llama_model_is_diffusion(self.pointer)
            and native.llama_vocab_type(native.llama_model_get_vocab(self.pointer))
            and self._metadata("attention.causal") != "false"
        )

    def _encodes_text(self) -> bool:
        return bool(
            not (native.llama_model_has_decoder(self.pointer) and native.llama_model_has_encoder(self.pointer))
            and not native.llama_model_is_diffusion(self.pointer)
            and native.llama_vocab_type(native.llama_model_get_vocab(self.pointer))
        )

    def _metadata(self, key: str) -> str:
        """The metadata value of `key` in the section of the file's architecture; "" if it has none."""
        buffer = ctypes.create_string_buffer(MAX_PIECE_BYTES)
        architecture = self._metadata_at("general.architecture", buffer)
        return self._metadata_at(f"{architecture}.{key}", buffer)

    def _metadata_at(self, key: str, buffer: ctypes.Array[ctypes.c_char]) -> str:
        length = native.llama_model_meta_val_str(self.pointer, key.encode(), buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace") if length >= 0 else ""

    def _read_piece(self, token: int, buffer: ctypes.Array[ctypes.c_char]) -> bytes:
        length: int = _piece(self.vocab, token, buffer, MAX_PIECE_BYTES, 0, False)
        return buffer.raw[: max(length, 0)]

    @property
    def begin(self) -> int | None:
        """The token at the beginning of every prompt; None if the model needs none."""
        wanted = native.llama_vocab_get_add_bos(self.vocab)
        return int(native.llama_vocab_bos(self.vocab)) if wanted else None

    def special_text(self, token: int) -> str:
        """The text of `token` in a template; "" for -1, llama.cpp's number for no token."""
        return "" if token < 0 else native.llama_vocab_get_text(self.vocab, token).decode("utf-8", "replace")

    @property
    def begin_text(self) -> str:
        """A template's `bos_token`."""
        return self.special_text(native.llama_vocab_bos(self.vocab))

    @property
    def end_text(self) -> str:
        """A template's `eos_token`."""
        return self.special_text(native.llama_vocab_eos(self.vocab))

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text of `ids`. A control token gives its name; bytes that are not UTF-8 become U+FFFD.

        Raises:
            Unavailable: the model is closed.
        """
        tokens = (native.llama_token * len(ids))(*ids)
        room = sum([len(self.pieces[token]) or MAX_PIECE_BYTES for token in ids]) + 8
        buffer = ctypes.create_string_buffer(room)
        with self._lock:
            if not self.pointer:
                raise Unavailable("the model is being shut down; ask again")
            length = native.llama_detokenize(self.vocab, tokens, len(ids), buffer, room, False, True)
        return buffer.raw[: max(length, 0)].decode("utf-8", "replace")

    def attributes(self, token: int) -> int:
        """The flags `LLAMA_TOKEN_ATTR_*` of `token`."""
        return int(native.llama_vocab_get_attr(self.vocab, token))

    def tokenize(self, text: str, *, special: bool, ends: bool = False) -> list[int]:
        """The tokens of `text`.

        Args:
            text: the text; lone surrogates become question marks.
            special: whether names of control tokens become control tokens; otherwise they are ordinary text.
            ends: whether to add the begin and end tokens that the model's author wants around a text.

        Raises:
            Unavailable: the model is closed.
        """
        raw = text.encode("utf-8", "replace")
        room = len(raw) + 8
        tokens = (native.llama_token * room)()
        cut = _tokenize if room < LONG_TEXT_CHARACTERS else native.llama_tokenize
        with self._lock:
            if not self.pointer:
                raise Unavailable("the model is being shut down; ask again")
            count = cut(self.vocab, raw, len(raw), tokens, room, ends, special)
        if count < 0:
            raise BadRequest("the prompt cannot be tokenized for this model")
        return list(tokens[:count])

    def close(self) -> None:
        """Free the weights; no context may use them afterwards."""
        with self._lock:
            # Hold the lock: another thread may be tokenizing a prompt with this vocabulary.
            pointer, self.pointer = self.pointer, None
            if pointer:
                native.llama_model_free(pointer)


_numbers = count(1)


class Adapter:
    """A loaded adapter. Loads and closes of one model's adapters must not overlap: llama.cpp keeps a list of them.

    Attributes:
        name: what requests call it.
        number: unique to this load, so memory evaluated with an earlier file is never reused for it.
    """

    def __init__(self, model: Weights, name: str, path: Path) -> None:
        """Load `path`; blocks.

        Raises:
            Unavailable: it cannot be read, or is no LoRA adapter of this model.
        """
        self.name = name
        self.number = next(_numbers)
        self.pointer = native.llama_adapter_lora_init(model.pointer, str(path).encode())
        if not self.pointer:
            raise Unavailable(
                f"llama.cpp cannot load the adapter {name!r}: its file must be a LoRA adapter of this model, as GGUF"
            )

    def close(self) -> None:
        """Free the memory; no context may have it in use."""
        pointer, self.pointer = self.pointer, None
        if pointer:
            native.llama_adapter_lora_free(pointer)
