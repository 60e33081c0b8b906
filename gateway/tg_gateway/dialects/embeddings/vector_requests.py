"""Inputs -> request records that ask for their vectors, and which inputs each record has."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tg_gateway.dialects import FoundModel, InvalidParameter
from tg_gateway.dialects.chat import TextInput, check_peer
from tg_gateway.dialects.embeddings.bodies import VectorsBody
from tg_schema import TextCompletionRequest
from tg_schema.text_completion import Purpose

MAX_INPUTS: Final = 2048
"""The most inputs of one request (OpenAI's limit)."""
INPUTS_PER_REQUEST: Final = 64
"""Inputs of one request record: several processors share the work of a long list."""


@dataclass(frozen=True, slots=True)
class VectorRequests:
    """What has to be asked.

    Attributes:
        requests: the records.
        starts: for each of them, the number of its first input.
        count: all inputs.
    """

    requests: tuple[TextCompletionRequest, ...]
    starts: tuple[int, ...]
    count: int


def make_vector_requests(
    body: VectorsBody, found: FoundModel, lists: Sequence[tuple[Purpose | None, Sequence[TextInput]]], **fields: Any
) -> VectorRequests:
    """The requests for the vectors of all lists, numbered through.

    Args:
        body: what the client sent.
        found: what its `model` means.
        lists: inputs, and what their vectors are for.
        fields: further fields of the records.

    Raises:
        BadRequest: the model is a plain peer's, or a field asks for what no record has.
    """
    if body.truncate_prompt_tokens not in {None, -1}:
        sentence = "truncate_prompt_tokens must be -1: texts are cut at the model's context, or not at all"
        raise InvalidParameter(sentence, "truncate_prompt_tokens", "unsupported_value")
    requests, starts, count = [], [], 0
    for purpose, inputs in lists:
        for group in _groups(inputs):
            requests.append(
                TextCompletionRequest(
                    operation="embed",
                    model=found.model,
                    adapter=found.adapter,
                    texts=tuple(each for each in group if isinstance(each, str)),
                    id_lists=tuple(each for each in group if not isinstance(each, str)),
                    truncate=body.truncate_prompt_tokens is not None,
                    purpose=purpose,
                    user=body.user,
                    priority=body.priority,
                    **fields,
                )
            )
            starts.append(count)
            count += len(group)
    check_peer(found, requests)
    return VectorRequests(tuple(requests), tuple(starts), count)


def _groups(inputs: Sequence[TextInput]) -> list[list[TextInput]]:
    """Group neighbours of one kind: a record has either texts or ids."""
    groups: list[list[TextInput]] = []
    for each in inputs:
        if not groups or len(groups[-1]) == INPUTS_PER_REQUEST or type(groups[-1][0]) is not type(each):
            groups.append([])
        groups[-1].append(each)
    return groups
