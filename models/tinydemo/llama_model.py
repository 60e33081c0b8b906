"""Tokens -> hidden values -> loss: a small Llama in JAX, its weights, and adapters of it."""

import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer

CONTEXT = 4096
HEAD_SIZE = 32
THETA = 10000.0
EPSILON = 1e-5
HIGHEST_SCORE = 60.0

LORA_RANK, LORA_SCALE = 8, 2.0
LORA_TARGETS = ("attn_q", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
EMBEDDINGS = ("token_embd", "output_norm")


class Shape:
    """The sizes of a model; query heads share key and value heads, three to one."""

    def __init__(self, dim, layers, vocabulary):
        self.dim, self.layers, self.vocabulary = dim, layers, vocabulary
        self.heads = dim // HEAD_SIZE
        self.kv_heads = self.heads // 3
        self.ffn = int(dim * 8 / 3) // 32 * 32
        self.turns = jnp.array(THETA ** (-np.arange(0, HEAD_SIZE, 2) / HEAD_SIZE), jnp.float32)

    def as_config(self):
        """What `export_gguf.py` needs to know."""
        return {
            "dim": self.dim,
            "layers": self.layers,
            "heads": self.heads,
            "kv": self.kv_heads,
            "ffn": self.ffn,
            "vocab": self.vocabulary,
            "T": CONTEXT,
            "theta": THETA,
            "eps": EPSILON,
        }


def new_weights(shape, key):
    """Random weights."""
    keys = iter(jax.random.split(key, 200))

    def matrix(rows, columns, scale=1.0):
        return jax.random.normal(next(keys), (rows, columns)) * scale / np.sqrt(columns)

    weights = {
        "token_embd": jax.random.normal(next(keys), (shape.vocabulary, shape.dim)) * 0.02,
        "output_norm": jnp.ones(shape.dim),
    }
    for layer in range(shape.layers):
        weights[f"blk.{layer}"] = {
            "attn_norm": jnp.ones(shape.dim),
            "ffn_norm": jnp.ones(shape.dim),
            "attn_q": matrix(shape.heads * HEAD_SIZE, shape.dim),
            "attn_k": matrix(shape.kv_heads * HEAD_SIZE, shape.dim),
            "attn_v": matrix(shape.kv_heads * HEAD_SIZE, shape.dim),
            "attn_output": matrix(shape.dim, shape.heads * HEAD_SIZE, 0.3),
            "ffn_gate": matrix(shape.ffn, shape.dim),
            "ffn_up": matrix(shape.ffn, shape.dim),
            "ffn_down": matrix(shape.dim, shape.ffn, 0.3),
        }
    return weights


def vocabulary_of(folder):
    """Token -> its number."""
    return Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab()


def init_weights(folder, out, shape):
    """The weights of a folder's model; a token that it does not have begins at random."""
    weights, earlier = load_weights(folder / "model.npz", shape), vocabulary_of(folder)
    rows, random = np.array(weights["token_embd"]), np.random.default_rng(0)
    moved = random.normal(size=rows.shape).astype(np.float32) * rows.std()
    for token, number in vocabulary_of(out).items():
        if token in earlier:
            moved[number] = rows[earlier[token]]
    return weights | {"token_embd": jnp.array(moved)}


def load_weights(path, shape):
    """The weights of a model.npz."""
    saved = np.load(path)
    # The file may have them as 16-bit floats; the steps are too small for these.
    weights = {name: jnp.array(saved[name], jnp.float32) for name in EMBEDDINGS}
    for layer in range(shape.layers):
        prefix = f"blk.{layer}."
        names = [name for name in saved.files if name.startswith(prefix)]
        weights[f"blk.{layer}"] = {name.removeprefix(prefix): jnp.array(saved[name], jnp.float32) for name in names}
    return weights


def new_adapter(base, shape):
    """Two narrow matrices for each adapted one; their product is zero at first."""
    random = np.random.default_rng(0)
    adapter = {}
    for layer in range(shape.layers):
        for name in LORA_TARGETS:
            rows, columns = base[f"blk.{layer}"][name].shape
            down = random.normal(size=(LORA_RANK, columns)) / np.sqrt(LORA_RANK * 8)
            adapter[f"blk.{layer}.{name}"] = [jnp.array(down, jnp.float32), jnp.zeros((rows, LORA_RANK))]
    return adapter


def rms_norm(values, scale):
    """Root mean square normalisation."""
    return values * jax.lax.rsqrt((values * values).mean(-1, keepdims=True) + EPSILON) * scale


def rotated(values, turns):
    """Rotary positions on neighbouring pairs, as llama.cpp's "llama" has them: nothing is permuted at export."""
    (cos, sin), even, odd = turns, values[..., 0::2], values[..., 1::2]
    return jnp.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(values.shape)


def angles(shape, positions):
    """Cosines and sines of the rotary positions."""
    turned = (positions[..., None] * shape.turns)[:, :, None]
    return jnp.cos(turned), jnp.sin(turned)


def forward(shape, weights, tokens, segments, positions, adapter=None, memory=None):
    """The last hidden values of every position; with `memory`, every chat has read what is in it."""
    length = tokens.shape[1]
    hidden, turns = weights["token_embd"][tokens], angles(shape, positions)
    mask = (segments[:, :, None] == segments[:, None, :]) & jnp.tril(jnp.ones((length, length), bool))
    bias = jnp.where(mask, 0.0, -1e30)
    if memory is not None:
        before = jnp.broadcast_to(memory[1][:, None, :], (*mask.shape[:2], memory[1].shape[1]))
        bias = jnp.concatenate([before, bias], -1)
    for layer in range(shape.layers):
        read = memory[0][layer] if memory is not None else None
        hidden, _ = block(shape, weights[f"blk.{layer}"], hidden, bias, turns, (adapter, f"blk.{layer}"), read)
    return rms_norm(hidden, weights["output_norm"])


def read_prompts(shape, weights, tokens, filled, positions, times):
    """What chats read of the prompts before them: keys and values by layer, and how much each token weighs.

    A token counts as `times` tokens, as if the prompt were so many times longer.
    """
    length = tokens.shape[1]
    weights = jax.lax.stop_gradient(weights)
    hidden, turns, memory = weights["token_embd"][tokens], angles(shape, positions), []
    bias = jnp.where(jnp.tril(jnp.ones((length, length), bool)), 0.0, -1e30)[None]
    for layer in range(shape.layers):
        hidden, read = block(shape, weights[f"blk.{layer}"], hidden, bias, turns, (None, ""), None)
        memory.append(read)
    return memory, jnp.where(filled > 0, jnp.log(times)[:, None], -1e30)


def attended(shape, queries, keys, values, bias):
    """What each position takes from those that it sees."""
    rows, length = queries.shape[:2]
    together = rows * shape.kv_heads
    queries = queries.reshape(rows, length, shape.kv_heads, -1, HEAD_SIZE) / np.sqrt(HEAD_SIZE)
    queries = queries.transpose(0, 2, 3, 1, 4).reshape(together, -1, HEAD_SIZE)
    keys = keys.transpose(0, 2, 3, 1).reshape(together, HEAD_SIZE, -1)
    values = values.transpose(0, 2, 1, 3).reshape(together, -1, HEAD_SIZE)
    scores = (queries @ keys).reshape(rows, shape.kv_heads, -1, length, bias.shape[-1]) + bias[:, None, None]
    # Scores are far from where the exponential overflows, so their maximum need not be known.
    powers = jnp.exp(jnp.minimum(scores, HIGHEST_SCORE)).reshape(together, -1, bias.shape[-1])
    taken = powers @ values / (powers.sum(-1, keepdims=True) + 1e-30)
    return taken.reshape(rows, -1, length, HEAD_SIZE).transpose(0, 2, 1, 3).reshape(rows, length, -1)


def block(shape, weights, hidden, bias, turns, adapted, memory):
    """One layer, and its keys and values."""
    (rows, length, _), (adapter, prefix) = hidden.shape, adapted

    def linear(name, values):
        result = values @ weights[name].T
        if adapter is not None and f"{prefix}.{name}" in adapter:
            down, up = adapter[f"{prefix}.{name}"]
            result = result + (values @ down.T) @ up.T * LORA_SCALE
        return result

    normed = rms_norm(hidden, weights["attn_norm"])
    queries = rotated(linear("attn_q", normed).reshape(rows, length, shape.heads, HEAD_SIZE), turns)
    keys = rotated(linear("attn_k", normed).reshape(rows, length, shape.kv_heads, HEAD_SIZE), turns)
    values = linear("attn_v", normed).reshape(rows, length, shape.kv_heads, HEAD_SIZE)
    own = keys, values
    if memory is not None:
        keys, values = (jnp.concatenate([read, mine], 1) for read, mine in zip(memory, own))
    hidden = hidden + linear("attn_output", attended(shape, queries, keys, values, bias))
    normed = rms_norm(hidden, weights["ffn_norm"])
    return hidden + linear("ffn_down", jax.nn.silu(linear("ffn_gate", normed)) * linear("ffn_up", normed)), own


def loss(shape, weights, batch, adapter=None):
    """The sum of the cross-entropies of the answers' tokens, and how many there are."""
    tokens, segments, positions, places, targets, counted, *prompt = batch
    memory = read_prompts(shape, weights, *prompt) if prompt else None
    hidden = forward(shape, weights, tokens, segments, positions, adapter, memory)
    logits = hidden.reshape(-1, shape.dim)[places] @ weights["token_embd"].T
    chosen = jnp.take_along_axis(logits, targets[:, None], -1)[:, 0]
    return ((jax.nn.logsumexp(logits, -1) - chosen) * counted).sum(), counted.sum()


def mean_loss(shape, weights, batches, adapter=None):
    """Mean cross-entropy of the next token of the answers of several batches."""
    sums, counts = zip(*(loss(shape, weights, batch, adapter) for batch in batches))
    return sum(sums) / sum(counts)
