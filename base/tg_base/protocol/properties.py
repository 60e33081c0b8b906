"""A message's properties -> numbers within their range; any other value makes it a poison message."""

from tg_schema.errors import BadRequest

MAX_NUMBER = 2**53
"""The largest number in a property; above it, not every whole number is a float."""
_MAX_DIGITS = 16


def whole_number(name: str, text: str, *, least: int = 0, most: int = MAX_NUMBER) -> int:
    """The number in a property.

    Args:
        name: the property, for the error.
        text: at most 16 decimal digits, and nothing else: no sign, blank or underscore.
        least: smallest valid value.
        most: largest valid value.

    Raises:
        BadRequest: the text is not such a number.
    """
    number = int(text) if len(text) <= _MAX_DIGITS and text.isascii() and text.isdigit() else -1
    if not least <= number <= most:
        raise BadRequest(f"the property `{name}` must be a whole number from {least} to {most}")
    return number
