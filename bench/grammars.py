"""Our grammars, llguidance and xgrammar side by side: compiling a form, and masking a vocabulary for a token.

    python -m bench.grammars
    python -m bench.grammars --sizes 2048 32000 128000

Each library walks through the same answers, whose tokens are the longest ones that fit, and is asked at each of them
for all tokens that may come next. Ours is also asked whether the one token is allowed, which is what it does while the
model keeps to the form by itself. The vocabularies are made of the texts of this project.

The other libraries are installed into an environment of their own, `.cache/bench/grammars`; xgrammar without torch and
transformers, of which it uses types alone here: it is given numpy's arrays.
A JSON object on standard output: medians in microseconds.
"""

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

ROOT = Path(__file__).parents[1]
ENVIRONMENT = ROOT / ".cache" / "bench" / "grammars"
NEEDS = ("llguidance==1.9.1", "numpy", "xgrammar==0.2.8", "apache-tvm-ffi", "pydantic", "typing-extensions")
NEEDS_OF_THESE = ("pydantic-core", "annotated-types", "typing-inspection")
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "tags": {"type": "array", "items": {}}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
ORDERS = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "maxLength": 64},
        "kind": {"enum": ["invoice", "order", "offer", "reminder"]},
        "lines": {
            "type": "array",
            "maxItems": 50,
            "items": {
                "anyOf": [
                    {"type": "object", "properties": {"sku": {"type": "string"}, "count": {"type": "integer"}}},
                    {"type": "null"},
                ]
            },
        },
        "buyer": PERSON,
    },
    "required": ["id", "kind", "lines", "buyer"],
    "additionalProperties": False,
}
ANNA = '{"name": "Anna Schmidt", "age": 30, "tags": ["a topic is a stream of messages", 12.5, null]}'
FORMS: dict[str, tuple[Any, str]] = {
    "person": (PERSON, ANNA),
    "orders": (
        ORDERS,
        f'{{"id": "x", "kind": "reminder", "lines": [{{"sku": "blue fox", "count": 7}}, null], "buyer": {ANNA}}}',
    ),
    "regex": (r"[A-Z][a-z]+ (is|was) [0-9]{1,3} years old\.", "Anna is 30 years old."),
}
COVERED: dict[str, Any] = {
    "minimum": {"type": "integer", "minimum": 3, "maximum": 120},
    "pattern": {"type": "string", "pattern": "^[a-z]+-[0-9]+$"},
    "allOf of two": {"allOf": [{"type": "object", "required": ["a"]}, {"properties": {"a": {"type": "null"}}}]},
    "anyOf beside others": {"type": "object", "properties": {"a": {}}, "anyOf": [{"required": ["a"]}]},
    "uniqueItems": {"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True},
    "patternProperties": {"type": "object", "patternProperties": {"^x": {"type": "integer"}}},
    "multipleOf": {"type": "integer", "multipleOf": 5},
    "not": {"not": {"type": "string"}},
    "format email": {"type": "string", "format": "email"},
    "recursive union": {
        "$defs": {"n": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/n"}}, {"type": "integer"}]}},
        "$ref": "#/$defs/n",
    },
}


def make_vocabulary(size: int) -> list[bytes]:
    """The end token, the bytes, and the commonest pieces of words of this project's texts."""
    files = [*ROOT.glob("docs/*.md"), *ROOT.glob("*/tg_*/**/*.py"), *ROOT.glob("tests/**/*.py")]
    words = Counter(word for file in sorted(files) for word in re.findall(r" ?\w+| ?[^\w\s]+|\s+", file.read_text()))
    pieces: Counter[str] = Counter()
    for word, count in words.items():
        for start in range(min(len(word), 24)):
            for end in range(start + 2, min(len(word), start + 16) + 1):
                pieces[word[start:end]] += count * (end - start)
    single = [bytes([number]) for number in range(256)]
    common = [piece.encode() for piece, _ in pieces.most_common(size + 256) if "▁" not in piece]
    return [b"", *single, *dict.fromkeys(common)][:size]


def cut(text: bytes, tokens: Sequence[bytes]) -> list[int]:
    """The text as the longest tokens that fit."""
    numbers = {token: number for number, token in enumerate(tokens)}
    ids: list[int] = []
    while text:
        length = next(length for length in range(min(16, len(text)), 0, -1) if text[:length] in numbers)
        ids.append(numbers[text[:length]])
        text = text[length:]
    return ids


def timed(work: Callable[[], object]) -> float:
    """Microseconds."""
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1e6


Library = Callable[[list[bytes]], tuple[Callable[[Any], Any], Callable[[Any, int, dict[str, list[float]]], None]]]
"""A vocabulary -> a function that compiles a form, and one that masks for, and then takes, the next token."""


def ours(tokens: list[bytes]) -> Any:
    """Role: the grammars of this project, which llguidance follows."""
    from tg_llama.grammar.json_grammar import json_grammar  # noqa: PLC0415 - the other roles run without these
    from tg_llama.grammar.regex_grammar import regex_grammar  # noqa: PLC0415
    from tg_llama.grammar.token_grammars import TokenGrammars  # noqa: PLC0415

    grammars = TokenGrammars(tokens, {0})
    bits = np.zeros((len(tokens) + 31) // 32, dtype=np.uint32)
    grammars.compile("start: /a/")  # reads the vocabulary, once for a model

    def build(form: Any) -> Any:
        grammars.clear()
        return grammars.start(regex_grammar.__wrapped__(form) if isinstance(form, str) else json_grammar(form))

    def step(matcher: Any, token: int, told: dict[str, list[float]]) -> None:
        told["mask"].append(timed(lambda: matcher.unsafe_compute_mask_ptr(bits.ctypes.data, bits.nbytes)))
        told["one token"].append(timed(lambda: matcher.validate_tokens([token])))
        told["accept"].append(timed(lambda: matcher.consume_token(token)))
        if matcher.is_error():
            raise ValueError(f"token {tokens[token]!r} is not allowed")

    return build, step


def llguidance(tokens: list[bytes]) -> Any:
    """Role: llguidance."""
    library, arrays = import_module("llguidance"), import_module("llguidance.numpy")

    class Tokens:
        eos_token_id, bos_token_id, special_token_ids = 0, None, (0,)
        tokens: ClassVar[list[bytes]] = []

        def __call__(self, text: bytes) -> list[int]:
            return cut(text, self.tokens)

    Tokens.tokens = [b"</s>", *tokens[1:]]
    tokenizer = library.LLTokenizer(library.TokenizerWrapper(Tokens()))
    bits = arrays.allocate_token_bitmask(1, tokenizer.vocab_size)

    def build(form: Any) -> Any:
        kind = library.LLMatcher
        grammar = kind.grammar_from_regex(form) if isinstance(form, str) else kind.grammar_from_json_schema(form)
        matcher = kind(tokenizer, grammar)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher

    def step(matcher: Any, token: int, told: dict[str, list[float]]) -> None:
        told["mask"].append(timed(lambda: arrays.fill_next_token_bitmask(matcher, bits)))
        told["accept"].append(timed(lambda: matcher.consume_token(token)))
        if matcher.is_error():
            raise ValueError(matcher.get_error())

    return build, step


def xgrammar(tokens: list[bytes]) -> Any:
    """Role: xgrammar."""
    import_module("tvm_ffi")  # before the stand-in: it would ask torch for more
    stand_in = ModuleType("torch")
    stand_in.__dict__.update(tensor=lambda *_, **__: None, __getattr__=lambda _: object)
    sys.modules["torch"] = sys.modules["transformers"] = stand_in
    library = import_module("xgrammar")
    info = library.TokenizerInfo([b"</s>", *tokens[1:]], library.VocabType.RAW, stop_token_ids=[0])
    bits = np.zeros((1, (len(tokens) + 31) // 32), dtype=np.int32)

    def build(form: Any) -> Any:
        compiler = library.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        regex = isinstance(form, str)
        compiled = compiler.compile_regex(form) if regex else compiler.compile_json_schema(json.dumps(form))
        return library.GrammarMatcher(compiled)

    def step(matcher: Any, token: int, told: dict[str, list[float]]) -> None:
        told["mask"].append(timed(lambda: matcher.fill_next_token_bitmask(bits)))
        told["accept"].append(timed(lambda: matcher.accept_token(token)))

    return build, step


ROLES: dict[str, Library] = {"ours": ours, "llguidance": llguidance, "xgrammar": xgrammar}


def measure(role: str, tokens: list[bytes]) -> dict[str, Any]:
    """Each form: the time to compile it, and the medians of what a token costs."""
    build, step = ROLES[role](tokens)
    results: dict[str, Any] = {}
    for name, (form, answer) in FORMS.items():
        build_us = statistics.median(timed(partial(build, form)) for _ in range(5))
        told: dict[str, list[float]] = {"mask": [], "one token": [], "accept": []}
        for _ in range(5):
            follower = build(form)
            for token in cut(answer.encode(), tokens):
                step(follower, token, told)
        medians = {what: round(statistics.median(times), 1) for what, times in told.items() if times}
        slowest = round(statistics.quantiles(told["mask"], n=20)[-1], 1)
        results[name] = {"compile": round(build_us), **medians, "mask p95": slowest}
    return results


def covered(role: str) -> dict[str, bool]:
    """Which schemas compile; a library may do so and leave a keyword out, which its own documentation says."""
    build, _ = ROLES[role](make_vocabulary(2048))
    found: dict[str, bool] = {}
    for name, schema in COVERED.items():
        try:
            build(schema)
        except Exception:  # noqa: BLE001  whatever it says, it refused
            found[name] = False
        else:
            found[name] = True
    return found


def install() -> Path:
    """Make the environment of the other libraries; returns its Python."""
    python = ENVIRONMENT / "bin" / "python"
    if not (ENVIRONMENT / "ready").exists():
        uv = shutil.which("uv") or str(ROOT / ".cache" / "uv" / "bin" / "uv")
        subprocess.run([uv, "venv", "-q", "--clear", "--python", sys.executable, str(ENVIRONMENT)], check=True)
        command = [uv, "pip", "install", "-q", "--no-deps", "--python", str(python), *NEEDS, *NEEDS_OF_THESE]
        subprocess.run(command, check=True)
        (ENVIRONMENT / "ready").touch()
    return python


def main() -> None:
    """Compare, or play the role that the comparison asks for."""
    parser = argparse.ArgumentParser(prog="bench.grammars", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[2048, 32_000, 128_000])
    parser.add_argument("--role", choices=ROLES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        sizes = {size: measure(options.role, make_vocabulary(size)) for size in options.sizes}
        print(json.dumps({"sizes": sizes, "covers": covered(options.role)}))
        return
    python, report = install(), {}
    for role in ROLES:
        command = [
            sys.executable if role == "ours" else str(python),
            "-m",
            "bench.grammars",
            "--role",
            role,
        ]
        run = subprocess.run([*command, "--sizes", *map(str, options.sizes)], check=True, stdout=subprocess.PIPE)
        report[role] = json.loads(run.stdout)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
