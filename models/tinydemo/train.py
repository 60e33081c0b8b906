"""Train the demo model, or an adapter of it, on the CPU. Needs jax, numpy and tokenizers.

    python train.py TRAIN.jsonl VALIDATION.jsonl OUT_FOLDER SECONDS [--init FOLDER] [--lora MODEL.npz]

A Llama of 2 M parameters with tied embeddings: Muon for the matrices, Adam for the rest. OUT_FOLDER gets
tokenizer.json (made from TRAIN, or used if it is there), config.json and model.npz, or lora.npz for an adapter.
"""

import argparse
import functools
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"]
DIGITS, SPACE = "0123456789", "\u0120"
END_OF_TEXT, IM_START, IM_END = 0, 1, 2
PROMPT_WEIGHT = 0.1
"""How much a token that the model does not write itself counts in the loss."""
JUMPS, FARTHEST = 0.3, 3600
"""How many chats have a gap in their positions, and its most tokens: so few long rows teach a long context."""

CONTEXT = 4096
HEAD_SIZE = 32
THETA = 10000.0
EPSILON = 1e-5
OPEN_ROWS = 40
"""Rows that a chat may still be packed into."""

LORA_RANK, LORA_SCALE = 8, 2.0
LORA_TARGETS = ("attn_q", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
EMBEDDINGS = ("token_embd", "output_norm")

tree_map = jax.tree_util.tree_map
leaves = jax.tree_util.tree_leaves


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train")
    parser.add_argument("val")
    parser.add_argument("out", type=Path)
    parser.add_argument("seconds", type=float, help="how long to train; the learning rate falls towards the end")
    parser.add_argument("--lora", help="train an adapter of this model.npz")
    parser.add_argument("--init", type=Path, help="go on from this folder's model.npz, whose tokens may be others")
    parser.add_argument("--decay", type=float, default=0.6, help="the share of the time in which the rate falls to 0")
    parser.add_argument("--dim", type=int, default=192)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--vocab", type=int, default=2048)
    parser.add_argument("--T", type=int, default=256, help="tokens in a row")
    parser.add_argument("--B", type=int, default=24, help="rows in a step")
    parser.add_argument("--lr", type=float, default=1.0, help="factor on all learning rates")
    parser.add_argument("--max-steps", type=int, default=10**9)
    return parser.parse_args()


# Text to tokens


def read_chats(path):
    """The chats of a JSONL file."""
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def tokenizer_for(folder, chats, size):
    """The folder's tokenizer; made from the chats if there is none."""
    path = folder / "tokenizer.json"
    if not path.exists():
        made = Tokenizer(models.BPE())
        # No merge is learned that has a digit: a number's digits are tokens of their own.
        digits = pre_tokenizers.Digits(individual_digits=True)
        made.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
        made.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=size - len(DIGITS),
            special_tokens=SPECIAL,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        made.train_from_iterator((message["content"] for chat in chats for message in chat), trainer)
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        path.write_text(json.dumps(with_digits(json.loads(made.to_str()))))
    return Tokenizer.from_file(str(path))


def with_digits(tokenizer):
    """The tokenizer with a token more for each digit after a space."""
    for digit in DIGITS:
        tokenizer["model"]["vocab"][SPACE + digit] = len(tokenizer["model"]["vocab"])
        tokenizer["model"]["merges"].append([SPACE, digit])
    return tokenizer


def encode(tokenizer, chat, random):
    """A chat's tokens, how much each counts in the loss (answers fully, the rest little), and their positions."""
    ids, weights, starts = [END_OF_TEXT], [0.0], []
    for message in chat:
        starts.append(len(ids))
        head = [IM_START] + tokenizer.encode(message["role"] + "\n").ids
        body = tokenizer.encode(message["content"]).ids + [IM_END]
        tail = tokenizer.encode("\n").ids
        own = 1.0 if message["role"] == "assistant" else PROMPT_WEIGHT
        ids += head + body + tail
        weights += [PROMPT_WEIGHT] * len(head) + [own] * len(body) + [PROMPT_WEIGHT] * len(tail)
    positions = np.arange(len(ids))
    if random.random() < JUMPS:
        positions[random.choice(starts) :] += random.integers(FARTHEST)
    return ids, weights, positions.tolist()


def pack(tokenizer, chats, length):
    """Rows of tokens, weights, chat numbers (from 1; 0 = empty) and positions: no chat of a row sees another."""
    rows, random = [], np.random.default_rng(0)
    for chat in chats:
        ids, weights, positions = (column[: length + 1] for column in encode(tokenizer, chat, random))
        fitting = (row for row in rows[-OPEN_ROWS:] if len(row[0]) + len(ids) <= length + 1)
        row = next(fitting, None)
        if row is None:
            row = ([], [], [], [])
            rows.append(row)
        number = (row[2][-1] if row[2] else 0) + 1
        row[0].extend(ids)
        row[1].extend([0.0] + weights[1:])
        row[2].extend([number] * len(ids))
        row[3].extend(positions)
    types = (np.int32, np.float32, np.int32, np.int32)
    return [
        np.array([row[column] + [0] * (length + 1 - len(row[column])) for row in rows], kind)
        for column, kind in enumerate(types)
    ]


# The model


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
    weights = {name: jnp.array(saved[name]) for name in EMBEDDINGS}
    for layer in range(shape.layers):
        prefix = f"blk.{layer}."
        names = [name for name in saved.files if name.startswith(prefix)]
        weights[f"blk.{layer}"] = {name.removeprefix(prefix): jnp.array(saved[name]) for name in names}
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


def forward(shape, weights, tokens, segments, positions, adapter=None):
    """Logits of every position."""
    rows, length = tokens.shape
    hidden = weights["token_embd"][tokens]
    angles = (positions[..., None] * shape.turns)[:, :, None]
    turns = jnp.cos(angles), jnp.sin(angles)
    mask = (segments[:, :, None] == segments[:, None, :]) & jnp.tril(jnp.ones((length, length), bool))
    for layer in range(shape.layers):
        hidden = block(shape, weights[f"blk.{layer}"], hidden, mask, turns, adapter, f"blk.{layer}")
    return rms_norm(hidden, weights["output_norm"]) @ weights["token_embd"].T


def block(shape, weights, hidden, mask, turns, adapter, prefix):
    """One layer."""
    rows, length, _ = hidden.shape

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
    queries = queries.reshape(rows, length, shape.kv_heads, shape.heads // shape.kv_heads, HEAD_SIZE)
    scores = jnp.einsum("btkgd,bskd->bkgts", queries, keys) / np.sqrt(HEAD_SIZE)
    scores = jnp.where(mask[:, None, None], scores, -1e30)
    attended = jnp.einsum("bkgts,bskd->btkgd", jax.nn.softmax(scores, -1), values)
    hidden = hidden + linear("attn_output", attended.reshape(rows, length, shape.heads * HEAD_SIZE))
    normed = rms_norm(hidden, weights["ffn_norm"])
    return hidden + linear("ffn_down", jax.nn.silu(linear("ffn_gate", normed)) * linear("ffn_up", normed))


def loss(shape, weights, tokens, token_weights, segments, positions, adapter=None):
    """Mean weighted cross-entropy of the next token within a chat."""
    logits = forward(shape, weights, tokens[:, :-1], segments[:, :-1], positions[:, :-1], adapter)
    targets = tokens[:, 1:]
    counted = token_weights[:, 1:] * (segments[:, 1:] == segments[:, :-1])
    chosen = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return ((jax.nn.logsumexp(logits, -1) - chosen) * counted).sum() / counted.sum()


# The optimiser


def orthogonal(gradient):
    """Newton-Schulz iteration towards the nearest orthogonal matrix (Muon)."""
    tall = gradient.shape[0] > gradient.shape[1]
    result = gradient.T if tall else gradient
    result = result / (jnp.linalg.norm(result) + 1e-7)
    for _ in range(5):
        square = result @ result.T
        result = 3.4445 * result + (-4.775 * square + 2.0315 * square @ square) @ result
    return result.T if tall else result


def muon(weight, gradient, first, second, rate):
    """One step for a matrix."""
    first = 0.95 * first + gradient
    scale = 0.02 * np.sqrt(max(1, weight.shape[0] / weight.shape[1]))
    step = rate * scale * orthogonal(gradient + 0.95 * first)
    return weight - step - rate * 0.0005 * weight, first, second


def adam(weight, gradient, first, second, rate, number):
    """One step for embeddings, vectors and adapters."""
    first = 0.9 * first + 0.1 * gradient
    second = 0.98 * second + 0.02 * gradient * gradient
    mean, spread = first / (1 - 0.9**number), second / (1 - 0.98**number)
    return weight - rate * 0.004 * mean / (jnp.sqrt(spread) + 1e-8), first, second


def make_step(loss_of, takes_muon):
    """A compiled training step: (weights, moments) of before to those of after, and the loss."""

    @jax.jit
    def step(weights, firsts, seconds, number, rate, *batch):
        value, gradients = jax.value_and_grad(loss_of)(weights, *batch)
        norm = jnp.sqrt(sum((leaf * leaf).sum() for leaf in leaves(gradients)))
        gradients = tree_map(lambda leaf: leaf * jnp.minimum(1, 1 / norm), gradients)
        _, structure = jax.tree_util.tree_flatten(weights)
        moved = [
            muon(*each, rate) if takes_muon(each[0]) else adam(*each, rate, number)
            for each in zip(leaves(weights), leaves(gradients), leaves(firsts), leaves(seconds))
        ]
        after = [jax.tree_util.tree_unflatten(structure, column) for column in zip(*moved)]
        return (*after, value)

    return step


# The run


class Batches:
    """Rows in random order, again and again."""

    def __init__(self, rows, size):
        self._rows, self._size = rows, size
        self._random = np.random.default_rng(0)
        self._order = []

    def next(self):
        """The next rows: tokens, weights and chat numbers."""
        if len(self._order) < self._size:
            self._order = list(self._random.permutation(len(self._rows[0])))
        chosen, self._order = self._order[: self._size], self._order[self._size :]
        return [column[chosen] for column in self._rows]


def train(options, shape, weights, step, batches):
    """Step until the time is over; gives the weights and how many steps were made. Saves them now and then."""
    firsts, seconds = tree_map(jnp.zeros_like, weights), tree_map(jnp.zeros_like, weights)
    begun, started, number = time.time(), None, 0
    while True:
        done = (time.time() - started) / options.seconds if started else 0.0
        if done >= 1 or number >= options.max_steps:
            return weights, number
        number += 1
        rate = options.lr * min(1, number / 20) * min(1, (1 - done) / options.decay + 0.01 if options.decay else 1)
        weights, firsts, seconds, value = step(weights, firsts, seconds, float(number), rate, *batches.next())
        value = float(value)
        if started is None:
            started = time.time()
            print(f"compiled and made the first step in {started - begun:.1f} s", flush=True)
        if number % 100 == 0:
            save(options, shape, weights)
        if number % 50 == 0:
            speed = number * options.B * options.T / (time.time() - started)
            print(f"step {number} loss {value:.3f} tokens/s {speed:.0f} s {time.time() - started:.0f}", flush=True)


def validate(loss_of, weights, rows, size):
    """The loss on whole batches of the validation rows."""
    size = min(len(rows[0]), size)
    compiled = jax.jit(loss_of)
    starts = range(0, len(rows[0]) - size + 1, size)
    return np.mean([float(compiled(weights, *[column[at : at + size] for column in rows])) for at in starts])


def save(options, shape, weights):
    """The weights as npz, and the model's sizes."""
    if options.lora:
        pairs = {f"{name}.{side}": np.array(pair[n]) for name, pair in weights.items() for n, side in enumerate("ab")}
        np.savez(options.out / "lora.npz", **pairs)
    else:
        flat = {name: np.array(weights[name]) for name in EMBEDDINGS}
        for layer in range(shape.layers):
            flat |= {f"blk.{layer}.{name}": np.array(value) for name, value in weights[f"blk.{layer}"].items()}
        np.savez(options.out / "model.npz", **flat)
    (options.out / "config.json").write_text(json.dumps(shape.as_config()))


def main():
    """Train as the command line says."""
    options = arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    chats = read_chats(options.train)
    tokenizer = tokenizer_for(options.out, chats, options.vocab)
    rows = pack(tokenizer, chats, options.T)
    validation = pack(tokenizer, read_chats(options.val), options.T)
    fill = float((rows[2] > 0).mean())
    print(f"packed {rows[0].shape[0]} rows, {fill:.1%} full, {tokenizer.get_vocab_size()} tokens", flush=True)

    shape = Shape(options.dim, options.layers, tokenizer.get_vocab_size())
    if options.lora:
        base = load_weights(options.lora, shape)
        weights = new_adapter(base, shape)

        def loss_of(adapter, *batch):
            return loss(shape, base, *batch, adapter)
    else:
        start = new_weights(shape, jax.random.PRNGKey(0))
        weights = init_weights(options.init, options.out, shape) if options.init else start
        loss_of = functools.partial(loss, shape)
    print("parameters", sum(leaf.size for leaf in leaves(weights)), flush=True)

    def takes_muon(weight):
        return weight.ndim == 2 and weight.shape[0] != shape.vocabulary and not options.lora

    weights, steps = train(options, shape, weights, make_step(loss_of, takes_muon), Batches(rows, options.B))
    print("validation loss", validate(loss_of, weights, validation, options.B), "steps", steps)
    save(options, shape, weights)


if __name__ == "__main__":
    main()
