"""Models -> the model that a body names, Ollama's lists of models, and the details of one model."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from tg_gateway.dialects import Call, Catalogue, FoundModel
from tg_schema import TextCompletionResponse, encode
from tg_schema.errors import BadRequest, NotFound

LATEST: Final = "latest"
"""The tag that may be left out."""
API_VERSION: Final = "0.12.11"
"""The release of Ollama whose API this is; clients refuse older ones by it. Logprobs came with this version (release
notes: github.com/ollama/ollama/releases/tag/v0.12.11)."""
NEVER: Final = "9999-12-31T23:59:59Z"
"""The time at which models here are unloaded: never."""
UNKNOWN_TIME: Final = "1970-01-01T00:00:00Z"
"""Stands for the unknown time at which a model was made, since clients read a time."""
_CAPABILITIES: Final = (
    ("tools", "tools"),
    ("images", "vision"),
    ("suffix", "insert"),
    ("reasoning", "thinking"),
    ("embed", "embedding"),
)
"""A feature, and Ollama's word for it."""
ARCHITECTURE: Final = "tokengrid"
"""The prefix of a model's numbers: clients look for them under the name in `general.architecture`."""


class _Details(msgspec.Struct, frozen=True):
    """Ollama's details of a model's file, which are not known here."""

    parent_model: str = ""
    format: str = ""
    family: str = ""
    families: tuple[str, ...] = ()
    parameter_size: str = ""
    quantization_level: str = ""


class ListedModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """`digest` is the digest of the name: the tools show its first characters. A size of 0 is an unknown one."""

    name: str
    model: str
    digest: str
    details: _Details
    modified_at: str | None = None
    size: int = msgspec.field(default_factory=int)
    expires_at: str | None = None
    size_vram: int | None = None


class Models(msgspec.Struct, frozen=True):
    """A list of models."""

    models: tuple[ListedModel, ...]


class ShownModel(msgspec.Struct, frozen=True):
    """The known details of a model; unknown details of its file are empty."""

    modelfile: str
    parameters: str
    template: str
    details: _Details
    model_info: dict[str, Any]
    capabilities: tuple[str, ...]
    modified_at: str


class Version(msgspec.Struct, frozen=True):
    """The version of Ollama's API."""

    version: str


def encode_tags(catalogue: Catalogue) -> bytes:
    """`GET /api/tags`: exactly the names that can be asked now, each with its tag."""
    return encode(Models(tuple(_describe(name, modified_at=UNKNOWN_TIME) for name in catalogue.models())))


def encode_running(catalogue: Catalogue) -> bytes:
    """`GET /api/ps`: the same without models that are not loaded yet. When one will be unloaded is not known."""
    loaded = (each.model for each in catalogue.served_models() if not each.loading)
    return encode(Models(tuple(_describe(name, expires_at=NEVER, size_vram=0) for name in loaded)))


def encode_version() -> bytes:
    """`GET /api/version`."""
    return encode(Version(API_VERSION))


def encode_shown(records: Sequence[TextCompletionResponse], features: frozenset[str]) -> bytes:
    """`POST /api/show`.

    Args:
        records: what the model's provider reports about it.
        features: what its processors announce.
    """
    listed = next((model for record in records for model in record.models), None)
    numbers = {"context_length": listed.context_length, "embedding_length": listed.dimensions} if listed else {}
    info: dict[str, Any] = {"general.architecture": ARCHITECTURE}
    info |= {f"{ARCHITECTURE}.{name}": number for name, number in numbers.items() if number}
    can = ("completion", *(word for feature, word in _CAPABILITIES if feature in features))
    return encode(ShownModel("", "", "", _Details(), info, can, UNKNOWN_TIME))


def _describe(name: str, **fields: Any) -> ListedModel:
    # Ollama lists every model with a tag.
    tagged = name if ":" in name else f"{name}:{LATEST}"
    return ListedModel(tagged, tagged, hashlib.sha256(tagged.encode()).hexdigest(), _Details(), **fields)


def find_model(call: Call, name: str | None) -> FoundModel:
    """The model that a body's `model` means; from here on the log names its flow.

    Raises:
        BadRequest: the body names none.
        NotFound: there is no such model.
    """
    if not name:
        raise BadRequest("model is missing: name one of GET /api/tags")
    found = _find(call.catalogue, name)
    call.route = found.route
    return found


def _find(catalogue: Catalogue, name: str) -> FoundModel:
    """Find the model by the name unchanged, then with the tag `latest` or without it."""
    refusal: NotFound | None = None
    for spelled in _spellings(name):
        try:
            found = catalogue.find_model(spelled)
        except NotFound as error:
            refusal = refusal or error
        else:
            # A name that is known without its tag means that model, not an adapter of this name.
            if found.adapter != LATEST:
                return found
    raise refusal or NotFound(f"there is no model {name[:64]!r}; GET /api/tags lists those that there are")


def _spellings(name: str) -> Iterator[str]:
    yield name
    base, colon, tag = name.rpartition(":")
    if not colon:
        yield f"{name}:{LATEST}"
    elif tag == LATEST and base:
        yield base
