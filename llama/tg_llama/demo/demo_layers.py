"""Tokens -> logits: the demo model's layers, for several sequences at once."""

from typing import Any, NamedTuple

import numpy as np

from tg_llama.core import Floats
from tg_llama.demo.gguf_file import GgufFile

Tokens = np.ndarray[Any, np.dtype[np.int64]]


class _Layer(NamedTuple):
    """The weights of one layer. The weights of its norms are multiplied into the matrices that follow them."""

    attention: Floats
    output: Floats
    gate: Floats
    up: Floats
    down: Floats


class _Shape:
    """Sizes of the network: query heads share the heads of keys and values in groups."""

    def __init__(self, file: GgufFile) -> None:
        self.layers, self.width = file.size("block_count"), file.size("embedding_length")
        self.heads, self.shared = file.size("attention.head_count"), file.size("attention.head_count_kv")
        self.head = self.width // self.heads
        self.context = file.size("context_length")
        self.epsilon = np.float32(file.values["llama.attention.layer_norm_rms_epsilon"])
        self.base = float(file.values["llama.rope.freq_base"])


class DemoLayers:
    """The weights. Several threads may evaluate them, each with its own memory."""

    def __init__(self, file: GgufFile) -> None:
        shape = self._shape = _Shape(file)
        self._embedding = file.weights["token_embd.weight"]
        self._logits = _columns(self._embedding * file.weights["output_norm.weight"])
        self._layers = [_layer(file, f"blk.{number}", shape) for number in range(shape.layers)]
        turns = np.outer(np.arange(shape.context), shape.base ** (-np.arange(0, shape.head, 2) / shape.head))
        # Two neighbouring numbers of a head form one complex number, which is rotated by its token's position.
        self._turns = np.exp(1j * turns).astype(np.complex64)[:, None]

    def make_memory(self, slots: int) -> Floats:
        """Keys and values of as many sequences as `slots`, each of the whole context.

        The same positions of all sequences lie together, so positions that none has reached take no memory.
        """
        shape = self._shape
        memory = np.zeros((2, shape.layers, shape.context, slots, shape.shared, shape.head), np.float32)
        return memory.transpose(0, 1, 3, 4, 2, 5)

    def evaluate(self, tokens: Tokens, starts: Tokens, memory: Floats, slot: int) -> Floats:
        """The logits after the last token of each row.

        Args:
            tokens: a row for each slot, beginning with slot `slot`.
            starts: the position of each row's first token, after the tokens that the slot has evaluated before.
            memory: from `make_memory`.
            slot: the first slot.
        """
        places = starts[:, None] + np.arange(tokens.shape[1])
        hidden = self._embedding[tokens]
        with np.errstate(over="ignore"):  # the exponential in a closed gate overflows
            for number, layer in enumerate(self._layers):
                mixed = self._normal(hidden) @ layer.attention
                hidden = hidden + self._attend(memory[:, number], mixed, places, slot) @ layer.output
                normal = self._normal(hidden)
                gate = normal @ layer.gate
                hidden = hidden + (gate / (1 + np.exp(-gate)) * (normal @ layer.up)) @ layer.down
        logits: Floats = self._normal(hidden[:, -1]) @ self._logits
        return logits

    def _normal(self, rows: Floats) -> Floats:
        squares = np.einsum("...i,...i->...", rows, rows)[..., None] / np.float32(self._shape.width)
        normal: Floats = rows / np.sqrt(squares + self._shape.epsilon)
        return normal

    def _attend(self, memory: Floats, mixed: Floats, places: Tokens, slot: int) -> Floats:
        """The attention of each token to itself and to the tokens before it."""
        shape, (rows, length) = self._shape, places.shape
        heads = mixed.reshape(rows, length, -1, shape.head)
        turned = heads[:, :, : -shape.shared].view(np.complex64) * self._turns[places]
        turned = turned.view(np.float32)
        slots, most = np.arange(slot, slot + rows)[:, None], int(places.max()) + 1
        memory[0][slots, :, places] = turned[:, :, shape.heads :]
        memory[1][slots, :, places] = heads[:, :, -shape.shared :]
        queries = turned[:, :, : shape.heads].reshape(rows, length, shape.shared, -1, shape.head)
        queries = queries.transpose(0, 2, 3, 1, 4).reshape(rows, shape.shared, -1, shape.head)
        keys, values = memory[:, slot : slot + rows, :, :most]
        scores = (queries @ keys.swapaxes(2, 3)).reshape(rows, -1, length, most)
        later = np.arange(most) > places[:, None, :, None]
        scores[np.broadcast_to(later, scores.shape)] = -np.inf
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        taken = (scores.reshape(rows, shape.shared, -1, most) @ values).reshape(rows, -1, length, shape.head)
        joined: Floats = taken.swapaxes(1, 2).reshape(rows, length, shape.width)
        return joined


def _columns(rows: Floats) -> Floats:
    return np.ascontiguousarray(rows.T)


def _layer(file: GgufFile, name: str, shape: _Shape) -> _Layer:
    read, forward = (file.weights[f"{name}.{norm}_norm.weight"] for norm in ("attn", "ffn"))
    queries, keys, values = (file.weights[f"{name}.attn_{what}.weight"] for what in "qkv")
    mixed = np.concatenate([queries * np.float32(shape.head**-0.5), keys, values])
    return _Layer(
        _columns(mixed * read),
        _columns(file.weights[f"{name}.attn_output.weight"]),
        _columns(file.weights[f"{name}.ffn_gate.weight"] * forward),
        _columns(file.weights[f"{name}.ffn_up.weight"] * forward),
        _columns(file.weights[f"{name}.ffn_down.weight"]),
    )
