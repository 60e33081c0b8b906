"""Resource files -> resources, each checked by itself; `catalogue_builder` checks them together."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

from msgspec import Struct

from tg_base.config import Keys, TableReader, advise, read_text
from tg_picker.pools.kinds import KINDS, MAX_PORTS, SET_BY_CLUSTER, InferencePool, LLMRoute, Metadata, Node, Spec
from tg_picker.pools.yaml_document import YamlDocument, parse_yaml
from tg_schema.errors import BadRequest

AnySpec_co = TypeVar("AnySpec_co", bound=Spec, covariant=True)

YAML_WORDS = {
    "object": "a mapping",
    "array": "a list",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
}
"""msgspec's names of types -> their names for authors of YAML files."""

_SPECS: dict[str, type[Spec]] = {kind.__name__: kind for kind in KINDS}


class Resource(Struct, Generic[AnySpec_co], frozen=True):
    """One resource of a file."""

    metadata: Metadata
    spec: AnySpec_co
    document: YamlDocument
    keys: Keys

    @property
    def kind(self) -> str:
        """The name of its kind, as in the file."""
        return type(self.spec).__name__

    @property
    def title(self) -> str:
        """The name of the resource in errors."""
        return f"the {self.kind} {self.metadata.name}"

    def fault(self, sentence: str, *keys: str) -> BadRequest:
        """The error about one of its values, with the value's position."""
        return self.document.fault(sentence, *self.keys, *keys)


class _Form(Node, frozen=True):
    """The fields around `spec`, which all kinds have."""

    api_version: str
    kind: str
    metadata: Metadata
    spec: dict[str, Any]
    status: Any = None
    """Controllers write it; it is not read."""


def read_resources(file: Path) -> tuple[Resource[Spec], ...]:
    """The resources of a file.

    Raises:
        BadRequest: the file cannot be read, or a resource is wrong; with line and column.
    """
    return parse_resources(read_text(file, "resource"), file)


def parse_resources(text: str, file: Path) -> tuple[Resource[Spec], ...]:
    """The resources in a file's text, including those in a `List`, which kubectl writes for several.

    Raises:
        BadRequest: a resource is wrong.
    """
    return tuple(_parse(document, keys, data) for document, keys, data in _pieces(parse_yaml(text, file)))


def convert(document: YamlDocument, data: Any, kind: Any, keys: Keys = ()) -> Any:
    """Convert a value of a document to a type.

    Raises:
        BadRequest: it does not fit; the message names the first error, with line and column.
    """
    reader = TableReader()
    found = reader.read(data, kind, keys)
    if reader.wrong:
        first = reader.wrong[0]
        raise document.fault(first.describe(YAML_WORDS), *first.blamed)
    return found


def _pieces(documents: tuple[YamlDocument, ...]) -> Iterator[tuple[YamlDocument, Keys, Any]]:
    for document in documents:
        data = document.data
        if isinstance(data, dict) and data.get("kind") == "List" and isinstance(data.get("items"), list):
            yield from ((document, ("items", str(at)), each) for at, each in enumerate(data["items"]))
        else:
            yield document, (), data


def _drop_additions(data: Any) -> Any:
    """A resource without the metadata fields that its author did not write."""
    metadata = data.get("metadata") if isinstance(data, dict) else None
    if not isinstance(metadata, dict):
        return data
    return data | {"metadata": {name: value for name, value in metadata.items() if name not in SET_BY_CLUSTER}}


def _parse(document: YamlDocument, keys: Keys, data: Any) -> Resource[Spec]:
    form: _Form = convert(document, _drop_additions(data), _Form, keys)
    kind = _SPECS.get(form.kind)
    if kind is None:
        raise document.fault(f'unknown kind "{form.kind}"; {advise(form.kind, list(_SPECS))}', *keys, "kind")
    if form.api_version not in KINDS[kind]:
        raise document.fault(
            f"apiVersion of {form.kind} must be {' or '.join(KINDS[kind])}, not {form.api_version}", *keys, "apiVersion"
        )
    spec: Spec = convert(document, form.spec, kind, (*keys, "spec"))
    resource = Resource(form.metadata, spec, document, keys)
    _check(resource)
    return resource


def _check(resource: Resource[Spec]) -> None:
    """Check what types cannot express. A list from which something must be chosen may not be empty."""
    spec = resource.spec
    if isinstance(spec, LLMRoute) and not spec.backend_refs:
        raise resource.fault("backendRefs is empty; name an InferencePool", "spec", "backendRefs")
    if isinstance(spec, InferencePool):
        if not spec.selector.match_labels:
            raise resource.fault("matchLabels is empty; name a label of the endpoints", "spec", "selector")
        numbers = [port.number for port in spec.target_ports]
        if not 1 <= len(numbers) <= MAX_PORTS:
            raise resource.fault(f"targetPorts must have 1 to {MAX_PORTS} elements", "spec", "targetPorts")
        for at, number in enumerate(numbers):
            if number in numbers[:at]:
                raise resource.fault(f"port {number} is repeated; keep one", "spec", "targetPorts", str(at))
        picker = spec.endpoint_picker_ref
        if picker is not None and picker.kind == "Service" and picker.port is None:
            # A cluster refuses it too, so a file that works here works there as well.
            raise resource.fault("endpointPickerRef needs the port of a Service; add it", "spec", "endpointPickerRef")
