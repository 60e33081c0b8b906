"""Text completions -> dialog: their usage added up."""

from tg_schema.deltas import add_count


class Usage:
    """Tokens and the model; None = unknown, 0 = counted zero."""

    def __init__(self) -> None:
        self.in_token: int | None = None
        self.out_token: int | None = None
        self.model: str | None = None

    @property
    def total(self) -> int:
        """All known tokens."""
        return (self.in_token or 0) + (self.out_token or 0)

    def add(self, in_token: int | None, out_token: int | None, model: str | None = None) -> None:
        """Add the tokens of a record. The first model named is the dialog's."""
        self.in_token = add_count(self.in_token, in_token)
        self.out_token = add_count(self.out_token, out_token)
        self.model = self.model or model
