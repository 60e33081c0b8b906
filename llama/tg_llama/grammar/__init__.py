"""Schema, regular expression or choice -> grammar -> the tokens that may come next."""

from tg_llama.grammar.json_grammar import ANY_OBJECT, json_grammar, json_rule, walk_schemas
from tg_llama.grammar.parameter_types import (
    ANNOTATIONS,
    KNOWN,
    ParameterTypes,
    fits,
)
from tg_llama.grammar.regex_grammar import choice_grammar, escape_text, regex_grammar, write_pattern
from tg_llama.grammar.token_grammars import TokenGrammars, take_begun

__all__ = [
    "ANNOTATIONS",
    "ANY_OBJECT",
    "KNOWN",
    "ParameterTypes",
    "TokenGrammars",
    "choice_grammar",
    "escape_text",
    "fits",
    "json_grammar",
    "json_rule",
    "regex_grammar",
    "take_begun",
    "walk_schemas",
    "write_pattern",
]
