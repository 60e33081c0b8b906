"""`prompt` and `input` -> what they list: a text, several texts, token ids, or several lists of token ids."""

from typing import TypeAlias

from tg_gateway.dialects import InvalidParameter
from tg_schema.sampling import TokenId

TextInput: TypeAlias = str | tuple[int, ...]
"""A text, or the ids of its tokens."""
TextInputs: TypeAlias = str | tuple[str | TokenId | tuple[TokenId, ...], ...]
"""The field as the client sent it."""


def read_inputs(field: str, given: TextInputs | None, most: int) -> tuple[TextInput, ...]:
    """The inputs, at least one, none of them empty.

    Args:
        field: its name, for errors.
        given: the value of the field.
        most: how many there may be.

    Raises:
        InvalidParameter: there is no text, one is empty, there are too many, or ids are mixed with texts or lists.
    """
    if given is None:
        raise InvalidParameter(f"{field} is missing", field, "missing_required_parameter")
    if isinstance(given, str):
        inputs: tuple[TextInput, ...] = (given,)
    else:
        several = tuple(each for each in given if not isinstance(each, int))
        ids = tuple(each for each in given if isinstance(each, int))
        if several and ids:
            raise InvalidParameter(
                f"{field}: send token ids, or a list of texts or of lists of token ids, not both",
                field,
                "invalid_value",
            )
        inputs = (ids,) if ids else several
    InvalidParameter.refuse_first(
        (
            not inputs or not all(inputs),
            field,
            "invalid_value",
            f"{field} must not be empty, nor anything in it",
        ),
        (len(inputs) > most, field, "invalid_value", f"{field} may have at most {most} entries; ask several times"),
    )
    return inputs
