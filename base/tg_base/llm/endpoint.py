"""Options, environment -> address of a provider's API, its model's name, and its key."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The arguments of a provider's client. A provider that needs more derives from it.

    Attributes:
        base_url: None = the SDK's default.
        model: its name at the provider.
        key: None = the server needs none, or the SDK finds other credentials.
    """

    # Without repr: an endpoint in a traceback or a log must not show the key.

    base_url: str | None
    model: str
    key: str | None = field(default=None, repr=False)
