"""The flags of `mlc_llm serve`, in both spellings, on `tg-serve`: what they become, or what refuses them."""

import hashlib
from dataclasses import fields
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tg_serve.command import serve
from tg_serve.mlc_flags import MlcFlags


def parsed(*arguments: str) -> tuple[MlcFlags, dict[str, Any]]:
    """The flags, and all parameters, as the command gets them."""
    given = serve.make_context("tg-serve", list(arguments)).params
    return MlcFlags(**{field.name: given[field.name] for field in fields(MlcFlags)}), given


ACCEPTED: list[tuple[list[str], dict[str, Any]]] = [
    (["m.gguf"], {"options": {}, "origins": None, "key": None}),
    (["m.gguf", "--mode", "local"], {"options": {"slots": 4}}),
    (["m.gguf", "--mode", "interactive"], {"options": {"slots": 1}}),
    (["m.gguf", "--mode", "server"], {"options": {}}),
    (
        [
            "m.gguf",
            "--mode",
            "local",
            "--overrides",
            "max_num_sequence=32; context_window_size=512;prefill_chunk_size=64",
        ],
        {"options": {"slots": 32, "context": 512, "batch": 64}},
    ),
    (["--device", "auto"], {"options": {}}),
    (["--device", "cpu:0", "--speculative-mode", "disable", "--enable-tracing"], {"options": {}}),
    (["--api-key", "secret"], {"key": hashlib.sha256(b"secret").hexdigest()}),
    (["--allow-origins", '["https://a"]'], {"origins": ("https://a",)}),
    (["--allowed-origins", '["*"]'], {"origins": ("*",)}),
    (["m.gguf", "--additional-models", "a b"], {"models": ("a", "b")}),
    (["m.gguf", "--additional-models", "a", "--additional-models", "b.gguf"], {"models": ("a", "b.gguf")}),
    (["m.gguf", "--allow-credentials"], {"allow_credentials": True, "models": ()}),
    (["--allow-methods", '["*"]', "--allowed-headers", '["*"]'], {"origins": None}),
    (["--allowed-methods", '["*"]', "--allow-headers", '["*"]'], {"origins": None}),
]


@pytest.mark.parametrize(("arguments", "meant"), ACCEPTED)
def test_flags_become_options(arguments: list[str], meant: dict[str, Any]) -> None:
    flags, given = parsed(*arguments)
    flags.check()
    assert {name: getattr(flags, name) for name in meant} == meant
    assert given["named_model"] == ("m.gguf" if "m.gguf" in arguments else None)


REFUSED = [
    (["m.gguf", "--model", "n.gguf"], "MODEL and --model are the same"),
    (["--mode", "local"], "--mode and --overrides describe a model: give its name"),
    (["m.gguf", "--mode", "fast"], "'fast' is not one of"),
    (
        ["m.gguf", "--overrides", "tensor_parallel_shards=2"],
        "tensor_parallel_shards means nothing to llama-cpp; leave it out. Known: max_num_sequence",
    ),
    (["m.gguf", "--overrides", "foo=1"], "foo means nothing to llama-cpp; leave it out. Known: max_num_sequence"),
    (["m.gguf", "--overrides", "max_num_sequence"], "must be a number"),
    (["m.gguf", "--overrides", "max_num_sequence=many"], "must be a number"),
    (["--device", "cuda:0"], "--device must be auto or cpu"),
    (["--speculative-mode", "eagle"], "--speculative-mode must be disable"),
    (["--additional-models", "n"], "--additional-models needs a first model"),
    (["m.gguf", "--additional-models", "n.gguf,n.so"], "which need no library after a comma"),
    (["m.gguf", "--api-key", ""], "--api-key is empty"),
    (["m.gguf", "--api-key", " "], "--api-key is empty"),
    (["--model-lib", "m.so"], "--model-lib is for MLC's own server: models are files of GGUF"),
    (["--embedding-model", "n"], "--embedding-model is for MLC's own server"),
    (["--prefix-cache-mode", "radix"], "--prefix-cache-mode is for MLC's own server"),
    (["--prefill-mode", "hybrid"], "--prefill-mode is for MLC's own server"),
    (["--enable-debug"], "--enable-debug is for MLC's own server"),
    (["--allowed-origins", "https://a"], "--allow-origins must be a list of texts in JSON"),
    (["--allow-methods", '["GET"]'], '--allow-methods must be ["*"]'),
    (["--allowed-headers", "[1]"], "--allow-headers must be a list of texts in JSON"),
]


@pytest.mark.parametrize(("arguments", "words"), REFUSED)
def test_what_means_nothing_here_is_refused_by_a_sentence(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(serve, arguments)
    assert result.exit_code == 2
    assert words in result.output.replace("\n", " ")


def test_the_help_does_not_list_them() -> None:
    flags = [each for each in serve.params if isinstance(each, click.Option) and each.hidden]
    assert {flag.name for flag in flags} == set(MlcFlags.__dataclass_fields__)
