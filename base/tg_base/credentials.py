"""Environment -> a provider's key: read once at start, kept out of every log, error and metric."""

import os

from tg_schema.errors import ProviderAuth


def key_from(variable: str | None, *older: str) -> str | None:
    """The key in an environment variable; None where no variable is named, because the server needs none.

    Args:
        variable: its name.
        older: names that are looked at where it is not set, for instance the predecessor's.

    Raises:
        ProviderAuth: it is not set; the message names the variable and never what is in it.
    """
    if not variable:
        return None
    key = key_if_set(variable, *older)
    if key is None:
        raise ProviderAuth(
            f"the environment variable {variable} is not set: put the provider's key there, "
            'or set key_variable = "" for a server that needs none'
        )
    return key


def key_if_set(*variables: str) -> str | None:
    """The key in the first of the variables that is set; None where none is."""
    values = (os.environ.get(name, "").strip() for name in variables)
    return next((value for value in values if value), None)
