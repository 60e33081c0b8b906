"""Fields that only Anthropic's API knows: passed on if the model's provider announces that, else ignored."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tg_gateway.dialects.anthropic.blocks import DIALECT
from tg_gateway.dialects.anthropic.body import MessageBody, OutputConfig, Thinking
from tg_schema import decode
from tg_schema.text_completion import Foreign

FOREIGN_FIELDS: Final = f"{DIALECT}_fields"
"""The feature of providers that pass on Anthropic's own fields and blocks."""
MAX_BETAS = 64
"""Names of beta versions that are passed on."""


@dataclass(frozen=True, slots=True)
class ForeignFields:
    """The fields that no record of ours has.

    Attributes:
        values: by name.
        nested: names of fields within fields that our records do have, such as `output_config.task_budget`.
        betas: the names of beta versions in the header `anthropic-beta`.
    """

    values: Mapping[str, msgspec.Raw]
    nested: tuple[str, ...] = ()
    betas: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names that are ignored if the provider does not take these fields."""
        return (*self.values, *self.nested, *(("anthropic-beta",) if self.betas else ()))

    def pass_on(self, sent: Mapping[str, msgspec.Raw], whole: frozenset[str], tools: tuple[Any, ...]) -> Foreign:
        """The record of these fields.

        Args:
            sent: all fields of the request.
            whole: further fields to pass on unchanged, because our records can express them only in part.
            tools: foreign ones.
        """
        named = {*self.values, *whole, *(name.partition(".")[0] for name in self.nested)}
        fields = {name: decode(Any, bytes(value)) for name, value in sent.items() if name in named}
        return Foreign(DIALECT, fields, tools, self.betas)


def find_foreign_fields(sent: Mapping[str, msgspec.Raw], betas: str) -> ForeignFields:
    """The fields of a request that no record of ours has.

    Args:
        sent: all fields of the request.
        betas: the header `anthropic-beta`; "" = there is none.
    """
    names = tuple(name for beta in betas.split(",") if (name := beta.strip()))[:MAX_BETAS]
    values = {name: value for name, value in sent.items() if name not in MessageBody.__struct_fields__}
    return ForeignFields(values, tuple(_list_nested(sent)), names)


def _list_nested(sent: Mapping[str, msgspec.Raw]) -> Iterator[str]:
    for outer, shape in (("output_config", OutputConfig), ("thinking", Thinking)):
        given = bytes(sent.get(outer, b"null"))
        fields = {} if given == b"null" else decode(dict[str, msgspec.Raw], given)
        yield from (f"{outer}.{name}" for name in fields if name not in shape.__struct_fields__)
