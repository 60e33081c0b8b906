"""LlmService -> topic of usage -> the reader `usage`: the usage of one call of a model, and who is charged."""

from collections.abc import Mapping
from typing import ClassVar, Final, Literal, Self

import msgspec

from tg_schema.codec import decode
from tg_schema.completion import Usage
from tg_schema.errors import BadRequest

BILLED_OPERATIONS: Final = frozenset({None, "", "completion", "embed", "score"})
"""Operations of text completion that are recorded, as a request may name them."""
Outcome = Literal["complete", "failed", "left"]
"""How a call of a provider ended; left = its reader left before the end."""


class Payer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who pays for a request.

    Attributes:
        key: the name of the API key, never the key itself; None = no key was required.
        customer: the customer of the key: the request's `user`, or the key's `customer`.
        tags: the key's tags.
    """

    key: str | None = None
    customer: str | None = None
    tags: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str | None) -> Self:
        """The payer of a request, from its JSON. Any peer on the bus may have written it."""
        try:
            return cls() if text is None else decode(cls, text)
        except BadRequest:
            return cls()


class UsageRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call of a model. It may arrive twice, and counts once: stream, attempt and call identify it.

    Attributes:
        stream: the id of the request's stream.
        unique: whether no other request has its `stream`; otherwise `began_at` identifies it as well. One of our
            requestors has asked: it writes the record too if it finds the processor dead.
        attempt: the requestor's attempt.
        call: the number of the provider's call within the attempt: 1, and further ones for merged answers; above
            1,000,000 if it failed before it brought anything and was tried again.
        version: the version of this record; a reader of a newer version's record keeps the fields that it knows.
        request: the id of the original request at the gateway (`X-Request-Id`).
        payer: who is charged.
        door: the dialect of the gateway, such as "openai"; "" = it was asked on the bus itself.
        flow: the flow's id.
        operation: an `Operation`.
        model: its name here.
        provider: the provider's name in the configuration, such as "openai".
        upstream_model: the model's name at the provider.
        server: the server of a pool.
        usage: tokens of each kind; None = unknown.
        estimated: whether any of these counts is an estimate.
        queued_at: when the requestor published the request; this and the next three are in milliseconds since the
            epoch, UTC.
        began_at: when the provider was called.
        first_at: when the first content arrived.
        ended_at: when the call ended.
        outcome: how it ended.
        error: the type of our error, such as "rate-limited".
        upstream_status: the HTTP status of the provider's refusal.
        upstream_request: the provider's id of the request.
        cost: in nano-dollars; None = unknown, never 0 for unknown.
    """

    later_words: ClassVar[Mapping[str, str]] = {"outcome": "failed"}

    stream: str
    attempt: int
    call: int = 1
    version: int = 1
    request: str = ""
    payer: Payer = Payer()
    door: str = ""
    flow: str = ""
    operation: str = "completion"
    model: str = ""
    provider: str = ""
    upstream_model: str = ""
    server: str | None = None
    usage: Usage = Usage()
    estimated: bool = False
    queued_at: int = 0
    began_at: int = 0
    first_at: int | None = None
    ended_at: int = 0
    outcome: Outcome = "complete"
    error: str | None = None
    upstream_status: int | None = None
    upstream_request: str | None = None
    cost: int | None = None
    unique: bool = False
