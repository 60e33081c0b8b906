"""Values of a request -> the members of a provider's JSON body that are set."""

from typing import Any


def set_fields(**fields: Any) -> dict[str, Any]:
    """The fields that say something: neither None nor empty. 0 and False are values; an empty table is one, too."""
    return {name: value for name, value in fields.items() if value is not None and value not in ((), "")}
