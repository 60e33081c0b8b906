"""`tg-serve-model`: one model at LMTP, with the options of `lmql serve-model`; or all models, each loaded on demand."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, get_args

import click

from tg_cli.entry import version_option
from tg_serve.command import run_server
from tg_serve.options import LogForm, LogLevel, ServeOptions
from tg_serve.provider_options import is_pair, read_provider_options

AUTO: Final = "auto"
"""Given in place of a model: serve all models of the configuration."""
DEFAULT_PORT: Final = 8080
"""Where LMQL looks for a model that is given no endpoint."""
_ENGINE_ALONE: Final[Mapping[str, str]] = {
    "cuda": "llama-cpp runs here on the CPU",
    "dtype": "a GGUF file has the precision of its weights; choose the file",
    "loader": "GGUF files are read by llama-cpp; for another provider give --provider",
    "layout": "start the command as often as you like, with --bus pulsar://HOST:PORT",
    "single_thread": "write threads=1",
    "docker_hide_port": "the ready line has the port that is listened on",
}
"""Options that are refused, and what to do in their place."""
_FLAGS: Final = frozenset({"cuda", "single_thread", "docker_hide_port"})


def _take_engine_options(command: Callable[..., None]) -> Callable[..., None]:
    """Options of `lmql serve-model` that mean nothing here; the help does not list them."""
    for name in _ENGINE_ALONE:
        spellings = dict.fromkeys((f"--{name}", f"--{name.replace('_', '-')}"))
        option = click.option(*spellings, name, is_flag=name in _FLAGS, default=None, hidden=True)
        command = option(command)
    return command


@click.command("tg-serve-model", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("model", default=AUTO)
@click.argument("pairs", metavar="[NAME=VALUE]...", nargs=-1)
@click.option("--config", type=click.Path(path_type=Path, dir_okay=False), help="TOML file. [default: built in]")
@click.option("--bus", help="memory:// or pulsar://HOST:PORT. [default: as configured]")
@click.option(
    "--host", envvar="TOKENGRID_HOST", help="Address to listen on. [default: TOKENGRID_HOST, or as configured]"
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="0 = any free one."
)
@click.option("--provider", help="Who provides the model, for instance vllm.")
@click.option("--static", is_flag=True, help="Load the model at once. That is the default for one that is named.")
@click.option("--log-format", type=click.Choice(get_args(LogForm)), default="auto", show_default=True)
@click.option("--log-level", type=click.Choice(get_args(LogLevel)), default="info", show_default=True)
@version_option("tokengrid-serve")
@_take_engine_options
def serve_model(**words: Any) -> None:
    """Serve a model at LMTP, for LMQL: PATH.gguf, hf:OWNER/NAME/FILE, a configured model, or a provider's.

    NAME=VALUE sets an option of the provider, such as slots=4. Without MODEL, or with auto, all models of the
    configuration are served: each is loaded for its first request, and unloaded when nobody uses it.

    All other protocols are served too, as by tg-serve.

    Exit codes: 0 stopped, 1 error, 2 wrong usage, 130 or 143 stopped at once.
    """
    run_server(read_order(**words))


def read_order(
    *,
    model: str,
    pairs: tuple[str, ...],
    config: Path | None,
    bus: str | None,
    host: str | None,
    port: int,
    provider: str | None,
    static: bool,
    log_format: LogForm,
    log_level: LogLevel,
    **engine: Any,
) -> ServeOptions:
    """The options of `tg-serve` that the command's arguments stand for.

    Raises:
        UsageError: an argument has no meaning here; the message says what to write.
    """
    for name, instead in _ENGINE_ALONE.items():
        if engine[name] is not None:
            raise click.UsageError(f"--{name} is for LMQL's own server: {instead}")
    if is_pair(model) and not Path(model).exists():
        raise click.UsageError(f"{model!r} is an option: name a model before it, as in tg-serve-model MODEL {model}")
    options = read_provider_options(None, pairs)
    if model == AUTO and (options or provider or static):
        raise click.UsageError(
            "auto serves the configuration's models with their own options: name a model, or leave the options out"
        )
    return ServeOptions(
        file=config,
        bus=bus,
        host=host,
        port=port,
        model=None if model == AUTO else model,
        provider=provider,
        options=options,
        on_demand=model == AUTO,
        log_form=log_format,
        log_level=log_level,
    )
