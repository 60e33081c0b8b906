"""Options, environment -> where a provider's API is, which of its models is asked, and with which key."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What a provider's client is made of; a provider that needs more derives from it.

    Attributes:
        base_url: None = as the SDK has it.
        model: its name at the provider.
        key: None = the server needs none, or the SDK finds other credentials.
    """

    base_url: str | None
    model: str
    key: str | None = field(default=None, repr=False)
