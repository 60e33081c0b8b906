"""The shape of what a fake is asked: a field that the provider's reference does not have is refused."""

import msgspec


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A shape of a reference."""
