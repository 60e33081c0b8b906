"""A policy's reasons -> sentences for an operator who does not know the policy."""

import re
from typing import Final

from tg_picker.status.request_record import RequestRecord

_WORDS: Final = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (
            r"cost ([\d.]+) s",
            "the lowest predicted wait: {0} s until the first token, with what this costs other requests",
        ),
        (r"score ([\d.]+)", "the highest score of the policy: {0}"),
        (r"requests (\d+)", "the fewest requests: {0}"),
        (r"pending (\d+)", "{0} requests there"),
        (r"adapters (\d+)", "{0} adapters in use there"),
        (r"adapter (?:loaded|active)", "the adapter is loaded there"),
        (r"adapter to load", "the adapter has to be loaded there first"),
        (r"affinity", "the adapter is in use there, or a place for it is free"),
        (r"random", "drawn by lot"),
        (r"turn", "its turn"),
        (r"queue below threshold", "its queue is short"),
        (r"all queues long", "all queues are long"),
        (r"least queue", "its queue is the shortest"),
        (r"sheddable", "a request that may be refused"),
        (r"room", "it has room"),
        (r"no-endpoints", "no server of the pool is ready"),
        (r"model-not-found", "no route, rewrite or server knows the model"),
        (r"saturated", "all servers are busy, and the request may be refused"),
        (r"queue-full", "no more requests may wait"),
        (r"displaced", "a request that goes before it took its place in the queue"),
        (r"expired", "it waited for a place as long as it may"),
        (r"objective-out-of-reach", "no server can keep the promise now, and the request may be refused"),
    )
)


def explain(record: RequestRecord) -> tuple[str, ...]:
    """Why a request went where it did, in sentences. An unknown reason is shown unchanged."""
    facts = record.facts
    sentences = [_describe(reason) for reason in record.reasons if not reason.startswith("cached blocks")]
    if record.cached_tokens:
        sentences.append(f"{record.cached_tokens} of {record.prompt_tokens} tokens of the prompt are in its cache")
    if facts.eligible == 1:
        sentences.append("the only server that it could go to")
    elif facts.eligible:
        sentences.append(f"chosen among {facts.eligible} servers")
    if facts.unreachable:
        sentences.append(f"{facts.unreachable} left out, since nobody can reach them")
    if record.moved:
        sentences.append("the picked server did not answer, so another one did")
    return tuple(sentences)


def _describe(reason: str) -> str:
    for pattern, words in _WORDS:
        if (found := pattern.fullmatch(reason)) is not None:
            return words.format(*found.groups())
    return reason
