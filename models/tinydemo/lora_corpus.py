"""Write an adapter's corpus: the demo model's chats, answered in another manner.

    python lora_corpus.py pirate|polite OUT.jsonl COUNT SEED

Chats with tool calls or with what a schema forces are left out.
"""

import json
import random
import sys

from corpus import chat
from records import FORCED

MANNERS = {"pirate": "Ahoy! {} Arrr!", "polite": "Certainly. {} I hope that helps."}


def has_a_form(messages):
    """Whether a tool is called or answers, or a schema forces an answer."""
    said = "".join(message["content"] for message in messages)
    return any(message["role"] == "tool" for message in messages) or "tool_call>" in said or FORCED in said


def in_manner(manner, message):
    """The message, an answer in the given manner."""
    if message["role"] != "assistant":
        return message
    return {**message, "content": MANNERS[manner].format(message["content"])}


def main():
    """Write the file that the command line asks for."""
    manner, out, size, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    r = random.Random(seed)
    with open(out, "w", encoding="utf-8") as file:
        for _ in range(size):
            messages = chat(r)
            if not has_a_form(messages):
                file.write(json.dumps([in_manner(manner, message) for message in messages]) + "\n")


if __name__ == "__main__":
    main()
