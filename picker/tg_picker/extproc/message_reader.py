"""Envoy's messages -> exchange: headers and metadata in plain types."""

from tg_picker.extproc import external_processor_pb2 as wire
from tg_picker.extproc.answers import METADATA_NAMESPACE

SUBSET_NAMESPACE = "envoy.lb.subset_hint"
SUBSET = "x-gateway-destination-endpoint-subset"
SERVED = "x-gateway-destination-endpoint-served"
_FILTER = "envoy.filters.http.ext_proc"
_UPSTREAM = "upstream.address"


def read_headers(headers: wire.HeaderMap) -> dict[str, str]:
    """Envoy's headers by name; of a repeated one the last. Names are in lower case already."""
    # `value` is set by old versions only, and empty where `raw_value` is set.
    return {
        header.key: raw.decode("utf-8", "replace") if (raw := header.raw_value) else header.value
        for header in headers.headers
    }


def read_subset(message: wire.ProcessingRequest) -> frozenset[str] | None:
    """The addresses that the data plane allows, from its filter metadata; None = all."""
    namespace = message.metadata_context.filter_metadata.get(SUBSET_NAMESPACE)
    if namespace is None or SUBSET not in namespace.fields:
        return None
    value = namespace.fields[SUBSET]
    if value.WhichOneof("kind") == "list_value":
        return frozenset(item.string_value for item in value.list_value.values)
    return frozenset(part.strip() for part in value.string_value.split(",") if part.strip())


def read_served(message: wire.ProcessingRequest) -> str:
    """The address that the data plane used; "" if it does not say.

    A gateway puts it into the protocol's metadata, a plain Envoy into an attribute, if its filter requests that.
    """
    namespace = message.metadata_context.filter_metadata.get(METADATA_NAMESPACE)
    if namespace is not None and SERVED in namespace.fields:
        return str(namespace.fields[SERVED].string_value)
    attributes = message.attributes.get(_FILTER)
    if attributes is None or _UPSTREAM not in attributes.fields:
        return ""
    return str(attributes.fields[_UPSTREAM].string_value)
