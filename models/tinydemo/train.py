"""Train the demo model, or an adapter of it, on the CPU. Needs jax, numpy and tokenizers.

    python train.py TRAIN.jsonl VALIDATION.jsonl OUT_FOLDER SECONDS [--foreign FOREIGN.jsonl] [--init FOLDER]
    python train.py TRAIN.jsonl VALIDATION.jsonl OUT_FOLDER SECONDS --lora MODEL.npz

A Llama of 2 M parameters with tied embeddings: Muon for the matrices, Adam for the rest. Of FOREIGN, each step has
some chats behind one long system prompt, which is read without a gradient: so it costs little. OUT_FOLDER gets
tokenizer.json (made from TRAIN, or used if it is there), config.json and model.npz, or lora.npz for an adapter.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from chat_rows import pack, pack_foreign, read_chats, tokenizer_for
from llama_model import EMBEDDINGS, Shape, init_weights, load_weights, mean_loss, new_adapter, new_weights
from optimiser import leaves, make_step, tree_map

ANSWERS = 0.5
"""The share of a batch's tokens that may count in the loss, at most."""
AVERAGED_STEPS = 50
"""Steps over which the kept weights are averaged: those of one step are noisy while the learning rate is high."""


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


@jax.jit
def averaged(mean, weights, share):
    """The mean, moved towards the weights by a share of the way."""
    return tree_map(lambda old, new: old + (new - old) * share, mean, weights)


def train(options, shape, weights, step, sources):
    """Step until the time is over; gives the mean weights and how many steps were made. Saves them now and then."""
    mean = weights
    firsts, seconds = tree_map(jnp.zeros_like, weights), tree_map(jnp.zeros_like, weights)
    begun, started, number, lately = time.time(), None, 0, 0.0
    while True:
        done = (time.time() - started) / options.seconds if started else 0.0
        if done >= 1 or number >= options.max_steps:
            return mean, number
        number += 1
        rate = options.lr * min(1, number / 20) * min(1, (1 - done) / options.decay + 0.01 if options.decay else 1)
        batches = [source.next() for source in sources]
        weights, firsts, seconds, value = step(weights, firsts, seconds, float(number), rate, batches)
        mean = averaged(mean, weights, 1 / min(number, AVERAGED_STEPS))
        lately += float(value) / 50
        if started is None:
            started = time.time()
            print(f"compiled and made the first step in {started - begun:.1f} s", flush=True)
        if number % 50 == 0:
            save(options, shape, mean)
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
