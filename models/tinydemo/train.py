"""Train the demo model, or an adapter of it, on the CPU. Needs jax, numpy and tokenizers.

    python train.py TRAIN.jsonl VALIDATION.jsonl OUT_FOLDER SECONDS [--foreign FOREIGN.jsonl] [--init FOLDER]
    python train.py TRAIN.jsonl VALIDATION.jsonl OUT_FOLDER SECONDS --lora MODEL.npz

A Llama of 2 M parameters with tied embeddings: Muon for the matrices, Adam for the rest. Of FOREIGN, each step has
some chats behind one long system prompt, which is read without a gradient: so it costs little. OUT_FOLDER gets
tokenizer.json (made from TRAIN, or used if it is there), config.json and model.npz, or lora.npz for an adapter.
"""

import argparse
import itertools
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
FORCED = "\x01"
"""Stands around what a grammar writes within an answer: it does not count in the loss."""
ANSWERS = 0.5
"""The share of a batch's tokens that may count in the loss, at most."""
JUMPS, FARTHEST = 0.3, 3600
"""How many chats have a gap in their positions, and its most tokens: so few long rows teach a long context."""

CONTEXT = 4096
HEAD_SIZE = 32
THETA = 10000.0
EPSILON = 1e-5
HIGHEST_SCORE = 60.0
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
    parser.add_argument("--foreign", help="chats behind long system prompts; those of one prompt stand together")
    parser.add_argument("--P", type=int, default=640, help="tokens of a long system prompt")
    parser.add_argument("--C", type=int, default=384, help="tokens of the chats behind it")
    parser.add_argument("--F", type=int, default=2, help="long system prompts in a step")
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


def encode_message(tokenizer, message):
    """A message's tokens, and whether each counts in the loss: those that the model writes itself."""
    ids = [IM_START] + tokenizer.encode(message["role"] + "\n").ids
    counted = [0.0] * len(ids)
    own = 1.0 if message["role"] == "assistant" else 0.0
    for at, text in enumerate(message["content"].split(FORCED)):
        body = tokenizer.encode(text).ids
        ids += body
        counted += [0.0 if at % 2 else own] * len(body)
    tail = tokenizer.encode("\n").ids
    return ids + [IM_END] + tail, counted + [own] + [0.0] * len(tail)


def encode(tokenizer, chat):
    """A chat's tokens, whether each counts in the loss, and where its messages begin."""
    ids, counted, starts = [], [], []
    for message in chat:
        starts.append(len(ids))
        more_ids, more_counted = encode_message(tokenizer, message)
        ids += more_ids
        counted += more_counted
    return ids, counted, starts


def pack(tokenizer, chats, length):
    """Rows of tokens, weights, chat numbers (from 1; 0 = empty) and positions: no chat of a row sees another."""
    rows, random = [], np.random.default_rng(0)
    for chat in chats:
        ids, counted, starts = encode(tokenizer, chat)
        positions = np.arange(len(ids) + 1)
        if random.random() < JUMPS:
            positions[random.choice(starts) + 1 :] += random.integers(FARTHEST)
        columns = [END_OF_TEXT, *ids], [0.0, *counted], positions.tolist()
        ids, counted, positions = (column[: length + 1] for column in columns)
        fitting = (row for row in rows[-OPEN_ROWS:] if len(row[0]) + len(ids) <= length + 1)
        row = next(fitting, None)
        if row is None:
            row = ([], [], [], [])
            rows.append(row)
        add_chat(row, ids, counted, positions)
    return as_arrays(rows, length + 1)


def add_chat(row, ids, counted, positions):
    """Append a chat to a row."""
    number = (row[2][-1] if row[2] else 0) + 1
    for column, more in zip(row, (ids, counted, [number] * len(ids), positions)):
        column.extend(more)


def as_arrays(rows, length):
    """The columns of the rows, each filled up with zeros."""
    types = (np.int32, np.float32, np.int32, np.int32)
    return [
        np.array([row[column] + [0] * (length - len(row[column])) for row in rows], kind)
        for column, kind in enumerate(types)
    ]


def pack_foreign(tokenizer, chats, most, length):
    """Long system prompts (tokens, weights, 1 or 0 = empty, positions) and, row by row, the chats behind each."""
    prompts, rows, random = [], [], np.random.default_rng(0)
    for _, group in itertools.groupby(chats, lambda chat: chat[0]["content"]):
        group = list(group)
        ids = [END_OF_TEXT, *encode_message(tokenizer, group[0][0])[0]]
        if len(ids) > most:
            ids = ids[: most // 2] + ids[-(most - most // 2) :]
        positions = gaps(np.arange(len(ids)), random)
        row = ([], [], [], [])
        for chat in group:
            ids_, counted, _ = encode(tokenizer, chat[1:])
            if len(row[0]) + len(ids_) <= length + 1:
                start = positions[-1] + 1
                add_chat(row, ids_, counted, range(start, start + len(ids_)))
        prompts.append((ids, [0.0] * len(ids), [1] * len(ids), positions.tolist()))
        rows.append(row)
    return as_arrays(prompts, most) + as_arrays(rows, length + 1)


def gaps(positions, random):
    """Positions with up to four gaps among them, as if the prompt were longer."""
    if random.random() < 0.5:
        farthest = random.integers(CONTEXT - 600 - len(positions))
        cuts = random.integers(1, len(positions), size=random.integers(1, 5))
        for cut in cuts:
            positions[cut:] += farthest // len(cuts)
    return positions


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
    def step(weights, firsts, seconds, number, rate, batches):
        value, gradients = jax.value_and_grad(loss_of)(weights, batches)
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


def as_batch(rows):
    """Rows as the loss wants them: inputs, and the places, targets and weights of what counts."""
    tokens, weights, segments, positions = rows[-4:]
    weights = weights[:, 1:] * (segments[:, 1:] == segments[:, :-1])
    (places,) = np.nonzero(weights.ravel())
    size = int(weights.size * ANSWERS)
    chosen, counted = np.zeros(size, np.int32), np.zeros(size, np.float32)
    places = places[:size]
    chosen[: len(places)], counted[: len(places)] = places, 1.0
    targets = tokens[:, 1:].ravel()[chosen]
    return tokens[:, :-1], segments[:, :-1], positions[:, :-1], chosen, targets, counted


class Batches:
    """Rows in random order, again and again."""

    def __init__(self, rows, size):
        self._rows, self._size = rows, size
        self._random = np.random.default_rng(0)
        self._order = []

    def next(self):
        """The next rows as a batch; with the prompts before them if they have some."""
        if len(self._order) < self._size:
            self._order = list(self._random.permutation(len(self._rows[0])))
        chosen, self._order = self._order[: self._size], self._order[self._size :]
        rows = [column[chosen] for column in self._rows]
        batch = as_batch(rows)
        if len(rows) == 4:
            return batch
        tokens, _, filled, positions = rows[:4]
        times = self._random.choice([1, 1, 1.5, 2, 3], len(chosen)).astype(np.float32)
        return *batch, tokens, filled, positions, times


def train(options, shape, weights, step, sources):
    """Step until the time is over; gives the weights and how many steps were made. Saves them now and then."""
    firsts, seconds = tree_map(jnp.zeros_like, weights), tree_map(jnp.zeros_like, weights)
    begun, started, number, lately = time.time(), None, 0, 0.0
    while True:
        done = (time.time() - started) / options.seconds if started else 0.0
        if done >= 1 or number >= options.max_steps:
            return weights, number
        number += 1
        rate = options.lr * min(1, number / 20) * min(1, (1 - done) / options.decay + 0.01 if options.decay else 1)
        batches = [source.next() for source in sources]
        weights, firsts, seconds, value = step(weights, firsts, seconds, float(number), rate, batches)
        lately += float(value) / 50
        if started is None:
            started = time.time()
            print(f"compiled and made the first step in {started - begun:.1f} s", flush=True)
        if number % 100 == 0:
            save(options, shape, weights)
        if number % 50 == 0:
            print(f"step {number} loss {lately:.3f} s {time.time() - started:.0f}", flush=True)
            lately = 0.0


def validate(loss_of, weights, source, times):
    """The loss on some batches."""
    compiled = jax.jit(loss_of)
    return np.mean([float(compiled(weights, [source.next()])) for _ in range(times)])


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

        def loss_of(adapter, batches):
            return mean_loss(shape, base, batches, adapter)
    else:
        start = new_weights(shape, jax.random.PRNGKey(0))
        weights = init_weights(options.init, options.out, shape) if options.init else start

        def loss_of(weights, batches):
            return mean_loss(shape, weights, batches)

    print("parameters", sum(leaf.size for leaf in leaves(weights)), flush=True)

    def takes_muon(weight):
        return weight.ndim == 2 and weight.shape[0] != shape.vocabulary and not options.lora

    sources = [Batches(rows, options.B)]
    if options.foreign:
        foreign = pack_foreign(tokenizer, read_chats(options.foreign), options.P, options.C)
        sources.append(Batches(foreign, options.F))
        print(f"packed {len(foreign[0])} long prompts, {(foreign[2] > 0).mean():.1%} full", flush=True)
        print(f"their chats are {(foreign[6] > 0).mean():.1%} full", flush=True)
    weights, steps = train(options, shape, weights, make_step(loss_of, takes_muon), sources)
    count = len(validation[0]) // options.B
    print("validation loss", validate(loss_of, weights, Batches(validation, options.B), count), "steps", steps)
    save(options, shape, weights)


if __name__ == "__main__":
    main()
