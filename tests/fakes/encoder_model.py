"""A tiny encoder (BERT) with random weights, as a model file: what it says means nothing, but llama.cpp computes it."""

from pathlib import Path

import numpy as np

from tests.fakes.gguf_file import Floats, write_model

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁a", "▁fox", "▁runs", "▁anna", "▁paris", "s", "▁topic", "▁what", "▁is"]
WIDTH, LAYERS, CONTEXT = 32, 2, 48


def write_encoder(target: Path, pooling: int) -> Path:
    """Write it; `pooling` is a number of `LLAMA_POOLING_TYPE_*`."""
    metadata = {
        "general.architecture": "bert",
        "bert.context_length": CONTEXT,
        "bert.embedding_length": WIDTH,
        "bert.feed_forward_length": 2 * WIDTH,
        "bert.block_count": LAYERS,
        "bert.attention.head_count": 4,
        "bert.attention.layer_norm_epsilon": 1e-5,
        "bert.attention.causal": False,
        "bert.pooling_type": pooling,
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.tokens": WORDS,
        "tokenizer.ggml.token_type": [3, 2, 3, 3, *[1] * (len(WORDS) - 4)],
        "tokenizer.ggml.token_type_count": 2,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.unknown_token_id": 1,
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.seperator_token_id": 3,
    }
    return write_model(target, metadata, _tensors(np.random.default_rng(1)))


def _tensors(random: np.random.Generator) -> dict[str, Floats]:
    def weights(*shape: int) -> Floats:
        return random.normal(0, 0.3, shape).astype(np.float32)

    def norm(name: str) -> dict[str, Floats]:
        return {f"{name}.weight": 1 + weights(WIDTH), f"{name}.bias": weights(WIDTH)}

    tensors = {
        "token_embd.weight": weights(len(WORDS), WIDTH),
        "token_types.weight": weights(2, WIDTH),
        "position_embd.weight": weights(CONTEXT, WIDTH),
        **norm("token_embd_norm"),
    }
    for layer in range(LAYERS):
        sizes = {"attn_q": (1, 1), "attn_k": (1, 1), "attn_v": (1, 1), "attn_output": (1, 1)}
        for name, (rows, columns) in (sizes | {"ffn_up": (2, 1), "ffn_down": (1, 2)}).items():
            tensors[f"blk.{layer}.{name}.weight"] = weights(rows * WIDTH, columns * WIDTH)
            tensors[f"blk.{layer}.{name}.bias"] = weights(rows * WIDTH)
        tensors |= norm(f"blk.{layer}.attn_output_norm") | norm(f"blk.{layer}.layer_output_norm")
    return tensors
