"""Provider's proof of its thinking <-> the `signature` of a record, which begins with the proof's origin.

The provider's decoder writes it, the doors pass it through, and only a provider that knows the origin sends it back.
"""


def write_signature(origin: str, value: str) -> str:
    """The signature of a record: "ORIGIN:value".

    Args:
        origin: the provider and the kind of value, such as "anthropic"; without a colon.
        value: the provider's own text, unchanged; "" if the thinking is to come back without a proof.
    """
    return f"{origin}:{value}"


def read_signature(signature: str | None, origin: str) -> str | None:
    """The provider's own text of a signature; None if there is no signature, or if it is of another origin."""
    found, colon, value = (signature or "").partition(":")
    return value if colon and found == origin else None
