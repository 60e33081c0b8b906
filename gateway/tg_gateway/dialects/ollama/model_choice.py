"""The `model` of a body -> the flow that has it; `latest` is the tag of a name without one."""

from collections.abc import Iterator
from typing import Final

from tg_gateway.dialects import Call, Catalogue, FoundModel
from tg_schema.errors import BadRequest, NotFound

LATEST: Final = "latest"
"""The tag that may be left out."""


def find_model(call: Call, name: str | None) -> FoundModel:
    """What a body's `model` means; from here on the log names its flow.

    Raises:
        BadRequest: the body names none.
        NotFound: there is no such model.
    """
    if not name:
        raise BadRequest("model is missing: name one of GET /api/tags")
    found = _find(call.catalogue, name)
    call.route = found.route
    return found


def add_tag(name: str) -> str:
    """A model's name as Ollama lists it: always with a tag."""
    return name if ":" in name else f"{name}:{LATEST}"


def _find(catalogue: Catalogue, name: str) -> FoundModel:
    """Find the model by the name as it is, then with the tag `latest` or without it."""
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
