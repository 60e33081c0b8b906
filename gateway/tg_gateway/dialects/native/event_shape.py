"""Record -> JSON of its event: the record's own fields, null ones left out; only what differs is declared."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast

import msgspec

from tg_schema import encode

R = TypeVar("R", bound=msgspec.Struct)

_NEVER_SHOWN: Final = "error"
"""A record with an error is no event: errors have a shape of their own."""


def event_encoder(
    record: type[R],
    always: Mapping[str, object],
    also: Mapping[str, str] = MappingProxyType({}),
    order: tuple[str, ...] = (),
) -> Callable[[R], bytes]:
    """What makes the JSON of a record's event.

    Args:
        record: its fields are the event's, in their order, but for `error`.
        always: the fields that every event has, with the value that replaces null.
        also: fields that an event repeats under a second name, and that name.
        order: fields that come first, in this order; the others follow in the record's.
    """
    known = {field.name: field for field in msgspec.structs.fields(record) if field.name != _NEVER_SHOWN}
    fields = [known[name] for name in dict.fromkeys((*order, *known))]
    shown = [(name, field) for field in fields for name in (field.name, also.get(field.name)) if name]
    event = msgspec.defstruct(
        f"{record.__name__}Event",
        # No field has the value UNSET, so a field with that default is never left out.
        [(name, Any, msgspec.UNSET if field.name in always else field.default) for name, field in shown],
        frozen=True,
        omit_defaults=True,
        gc=False,
    )

    def fill(record: R) -> R:
        missing = {name: value for name, value in always.items() if getattr(record, name) is None}
        return msgspec.structs.replace(record, **missing)

    values = ", ".join(f"record.{field.name}" for _, field in shown)
    is_whole = " and ".join(f"record.{name} is not None" for name in always)
    source = f"lambda record: encode(event({values})) if {is_whole} else again(fill(record))"
    # Written out like this it takes 0.2 us; attrgetter, which the interpreter does not specialise, takes twice that.
    names: dict[str, Any] = {"encode": encode, "event": event, "fill": fill}
    names["again"] = eval(source, names)  # noqa: S307 - made of the names of our own fields alone
    return cast("Callable[[R], bytes]", names["again"])
