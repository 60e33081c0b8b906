"""Record of a request -> its form on the bus: its JSON, and the few facts that its requestor needs."""

from dataclasses import dataclass
from typing import Any, Self

from tg_schema import Sampling, ServiceSpec
from tg_schema.codec import encode_request
from tg_schema.features import Feature
from tg_schema.prompt_size import measure_text


@dataclass(frozen=True, slots=True)
class EncodedRequest:
    """A request that was encoded elsewhere, for instance in another process: it can be asked like a record.

    Attributes:
        body: the JSON of its record.
        features: the features that the service's `ServiceSpec.features` lists.
        streaming: the record's `streaming`; True if it has no such field.
        sampling: the record's `sampling`, if it has any.
        cache_key: the record's `cache_key`, if it has any.
        text_bytes: as `measure_text` of the record.
        user: the record's `user`, if it has any.
        operation: the record's `operation`, if it has any.
    """

    body: bytes
    features: frozenset[Feature]
    streaming: bool | None = True
    sampling: Sampling | None = None
    cache_key: str | None = None
    text_bytes: int = 0
    user: str | None = None
    operation: str | None = None

    @classmethod
    def of(cls, spec: ServiceSpec[Any, Any], request: Any) -> Self:
        """A record, encoded.

        Raises:
            BadRequest: the record cannot be encoded.
        """
        sampling, cache_key = getattr(request, "sampling", None), getattr(request, "cache_key", None)
        streaming, user = getattr(request, "streaming", True), getattr(request, "user", None)
        size, operation = measure_text(request), getattr(request, "operation", None)
        features = spec.features(request)
        return cls(encode_request(request), features, streaming, sampling, cache_key, size, user, operation)
