"""`tg-serve-model`: what its words become, and the sentences for options of LMQL's own server."""

from typing import Any

import pytest
from click.testing import CliRunner

from tg_base.config import CliOverrides, Config, TextCompletionConfig
from tg_base.config.model import ModelConfig
from tg_serve.serve_model import read_order, serve_model

MODELS = {"small": ModelConfig(provider="llama-cpp"), "large": ModelConfig(provider="vllm")}
CONFIG = Config(models=MODELS, flows={"default": {"text-completion": TextCompletionConfig(model="small")}})


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        ([], {"model": None, "on_demand": True, "options": {}, "port": 8080}),
        (["auto", "--port", "0"], {"model": None, "on_demand": True, "port": 0}),
        (["small"], {"model": "small", "on_demand": False, "options": {}}),
        (["small", "--static", "slots=4", "path=a b"], {"model": "small", "options": {"slots": 4, "path": "a b"}}),
        (["m", "--provider", "vllm", "key_variable="], {"provider": "vllm", "options": {"key_variable": ""}}),
        (["models/a=b.gguf", "slots=4"], {"model": "models/a=b.gguf", "options": {"slots": 4}}),
        (["m.gguf", "--host", "0.0.0.0", "--bus", "pulsar://h:1"], {"host": "0.0.0.0", "bus": "pulsar://h:1"}),
    ],
)
def test_what_is_served(arguments: list[str], meant: dict[str, Any]) -> None:
    words = serve_model.make_context("tg-serve-model", arguments).params
    order = read_order(**words)
    assert {name: getattr(order, name) for name in meant} == meant


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["m", "--cuda"], "--cuda is for LMQL's own server: llama-cpp runs here on the CPU"),
        (["m", "--dtype", "8bit"], "choose the file"),
        (["m", "--loader", "auto-gptq"], "--provider"),
        (["m", "--layout", "4x1"], "--bus pulsar://"),
        (["m", "--single_thread"], "threads=1"),
        (["m", "--docker-hide-port"], "ready line"),
        (["m", "slots"], "write NAME=VALUE"),
        (["auto", "slots=4"], "name a model"),
        (["slots=4"], "'slots=4' is an option: name a model before it"),
        (["slots=4", "small"], "'slots=4' is an option: name a model before it"),
        (["--static"], "name a model"),
        (["--provider", "vllm"], "name a model"),
    ],
)
def test_what_is_refused(arguments: list[str], says: str) -> None:
    done = CliRunner().invoke(serve_model, arguments)
    assert (done.exit_code, says in done.output) == (2, True), done.output


def test_auto_serves_every_model_of_the_configuration_on_demand() -> None:
    config = CliOverrides(on_demand=True).apply(CONFIG)
    assert all(model.on_demand for model in config.models.values())
    bound = config.bound(TextCompletionConfig)
    assert {flow: said.model for flow, said in bound.items()} == {"default": "small", "large": "large"}
    assert CliOverrides().apply(CONFIG).models == MODELS
