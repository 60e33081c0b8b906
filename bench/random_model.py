"""A model of any size without a download: llama's architecture, random weights in Q8_0, the demo model's tokenizer.

    python -m bench.random_model 100m OUT.gguf

What it writes is noise, but it costs what a trained model of its size costs. Every token that it chooses is a piece of
ASCII text: an end token would cut answers short, and half characters would be held back until they are whole.
"""

import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tests.fakes.gguf_file import BLOCK, BLOCK_WEIGHTS, Blocks, Floats, read_vocabulary, write_model
from tg_llama.models import DEMO_MODEL
from tg_llama.native.model import Model

SEED = 1
SPREAD = 0.02
"""The standard deviation of a weight, as models are initialised."""

BARRED = -8.0
"""The weight by which tokens that are no text lose what `MARK` gives them."""

MARK = 1.0
"""The first number of every token's vector, which no layer changes: `BARRED` is multiplied by it."""

Q8_0_FILE = 7
"""`LLAMA_FTYPE_MOSTLY_Q8_0` in llama.h."""


class Shape(msgspec.Struct, frozen=True):
    """Sizes of a model; each is a multiple of a block's length.

    Attributes:
        heads, shared_heads: heads of queries, and of keys and values, which groups of queries share.
    """

    width: int
    layers: int
    heads: int
    shared_heads: int
    inner: int
    context: int = 4096

    @property
    def shared_width(self) -> int:
        """Numbers of a token's key, and of its value."""
        return self.width // self.heads * self.shared_heads


SHAPES = {
    "100m": Shape(width=768, layers=14, heads=12, shared_heads=4, inner=2432),
    "500m": Shape(width=1280, layers=28, heads=20, shared_heads=4, inner=3584),
}


def write_random_model(target: Path, shape: Shape) -> int:
    """Write it; the same weights each time. Returns the number of its parameters."""
    vocabulary = read_vocabulary(DEMO_MODEL)
    model = Model(DEMO_MODEL, weights=False)
    text = np.array([piece.isascii() and piece.decode().isprintable() and bool(piece) for piece in model.pieces])
    text[sorted(model.end_tokens)] = False
    model.close()
    tensors = _tensors(np.random.default_rng(SEED), shape, text)
    write_model(target, _metadata(shape) | vocabulary, tensors)
    return sum(tensor.size * (BLOCK_WEIGHTS if tensor.dtype == BLOCK else 1) for tensor in tensors.values())


def _metadata(shape: Shape) -> dict[str, Any]:
    sizes = {
        "context_length": shape.context,
        "embedding_length": shape.width,
        "block_count": shape.layers,
        "feed_forward_length": shape.inner,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.shared_heads,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": shape.width // shape.heads,
        "rope.freq_base": 10000.0,
    }
    return {
        "general.architecture": "llama",
        "general.file_type": Q8_0_FILE,
        **{f"llama.{name}": size for name, size in sizes.items()},
    }


def _tensors(random: np.random.Generator, shape: Shape, text: Any) -> dict[str, Floats | Blocks]:
    def blocks(rows: int, columns: int) -> Blocks:
        # Whole numbers at once: to draw floats and round them takes ten times as long.
        made: Blocks = np.empty((rows, columns // BLOCK_WEIGHTS), BLOCK)
        made["weights"] = np.frombuffer(random.bytes(rows * columns), "i1").reshape(made["weights"].shape)
        made["scale"] = SPREAD / (256 / 12**0.5)
        return made

    def into_stream(rows: int, columns: int) -> Blocks:
        made = blocks(rows, columns)
        made["weights"][0] = 0
        return made

    ones: Floats = np.ones(shape.width, np.float32)
    tokens, output = _token_vectors(random, len(text), shape), _token_vectors(random, len(text), shape)
    tokens[:, 0], output[:, 0] = MARK, np.where(text, 0, BARRED)
    tensors: dict[str, Floats | Blocks] = {
        "token_embd.weight": _quantized(tokens),
        "output_norm.weight": ones,
        "output.weight": _quantized(output),
    }
    for layer in range(shape.layers):
        own: dict[str, Floats | Blocks] = {
            "attn_norm": ones,
            "attn_q": blocks(shape.width, shape.width),
            "attn_k": blocks(shape.shared_width, shape.width),
            "attn_v": blocks(shape.shared_width, shape.width),
            "attn_output": into_stream(shape.width, shape.width),
            "ffn_norm": ones,
            "ffn_gate": blocks(shape.inner, shape.width),
            "ffn_up": blocks(shape.inner, shape.width),
            "ffn_down": into_stream(shape.width, shape.inner),
        }
        tensors |= {f"blk.{layer}.{name}.weight": tensor for name, tensor in own.items()}
    return tensors


def _token_vectors(random: np.random.Generator, tokens: int, shape: Shape) -> Floats:
    return random.normal(0, SPREAD, (tokens, shape.width)).astype(np.float32)


def _quantized(rows: Floats) -> Blocks:
    parts = rows.reshape(len(rows), -1, BLOCK_WEIGHTS)
    made: Blocks = np.empty(parts.shape[:2], BLOCK)
    scale = np.abs(parts).max(axis=-1) / 127
    made["scale"] = scale
    made["weights"] = np.rint(parts / scale[..., None])
    return made


def main() -> None:
    """Write the file that the command line asks for."""
    if len(sys.argv) != 3 or sys.argv[1] not in SHAPES:
        sys.exit(f"usage: python -m bench.random_model {'|'.join(SHAPES)} OUT.gguf")
    size, target = sys.argv[1], Path(sys.argv[2])
    parameters = write_random_model(target, SHAPES[size])
    print(f"{target}: {parameters / 1e6:.0f} million parameters, {target.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
