"""A processor's error, which has the record's field names -> the same error with the protocol's field names."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tg_schema import Sampling, TgError
from tg_schema.errors import BadRequest
from tg_schema.features import describe_missing


class InvalidParameter(BadRequest):
    """A bad request whose field is known.

    Args:
        message: what is wrong, and what to do.
        param: the field, such as `messages[0].role`.
        code: OpenAI's error code, such as `unsupported_value`.
    """

    def __init__(self, message: str, param: str, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code

    @classmethod
    def refuse_first(cls, *faults: tuple[object, str, str | None, str]) -> None:
        """Raise the first of these whose condition holds; each is a condition, a field, a code and a sentence."""
        for found, param, code, sentence in faults:
            if found:
                raise cls(sentence, param, code)


_FIELD: Final = re.compile(r"(?P<sampling>sampling\.)?(?P<name>[a-z_]+)(?=:| (?:must|may|cannot|needs?|is missing)\b)")
_MISSING: Final = re.compile(rf"(?<=^{describe_missing('~').partition('~')[0]})[a-z_, ]+(?=;)")
_SAMPLING: Final = re.compile(r"\bsampling\.(?P<name>[a-z_]+)")


@dataclass(frozen=True, slots=True)
class FieldNames:
    """A protocol's names for the fields of our completion record.

    Attributes:
        own: maps the record's field names to the protocol's; fields of `sampling` have no prefix there.
        prefix: put before the fields of `sampling` that `own` lacks, such as `options.`.
    """

    own: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""

    def translate(self, error: TgError) -> TgError:
        """The error with the protocol's field name if its message begins with the record's; otherwise the same error.

        An error about a missing feature has both names if they differ, since `GET /v1/models` lists the
        record's.
        """
        if type(error) is not BadRequest:
            return error
        if missing := _MISSING.search(error.message):
            return BadRequest(_MISSING.sub(", ".join(map(self._explain, missing[0].split(", "))), error.message))
        found = _FIELD.match(error.message)
        if found is None or not (found["sampling"] or found["name"] in self.own):
            return error
        # Later in a sentence, a bare name may be an ordinary word; only `sampling.` shows that a field is meant.
        rest = _SAMPLING.sub(lambda other: self._name(other["name"]), error.message[found.end() :])
        name = self._name(found["name"])
        return InvalidParameter(name + rest, name, "invalid_value")

    def _explain(self, feature: str) -> str:
        known = feature in self.own or feature in Sampling.__struct_fields__
        name = self._name(feature) if known else feature
        return feature if name.rpartition(".")[2] == feature else f"{feature} ({name})"

    def _name(self, name: str) -> str:
        return self.own.get(name) or self.prefix + name
