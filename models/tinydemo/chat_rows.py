"""Chats -> rows of tokens with weights, chat numbers and positions: how the model reads what it is trained on."""

import itertools
import json

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from llama_model import CONTEXT

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"]
DIGITS, SPACE = "0123456789", "\u0120"
END_OF_TEXT, IM_START, IM_END = 0, 1, 2
FORCED = "\x01"
"""Stands around what a grammar writes within an answer: it does not count in the loss."""
JUMPS, FARTHEST = 0.3, 3600
"""How many chats have a gap in their positions, and its most tokens: so few long rows teach a long context."""
OPEN_ROWS = 40
"""Rows that a chat may still be packed into."""


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
