"""`tg-serve`: the whole pipeline in one process, or one process of many."""

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import click

from tg_cli.endings import EXIT_FAILED, Failure, notify
from tg_cli.entry import announce, version_option
from tg_serve.mlc_flags import MlcFlags, take_mlc_flags
from tg_serve.options import PARTS, LogForm, LogLevel, ServeOptions
from tg_serve.provider_options import read_provider_options

MAX_WORKERS = 256


@click.command("tg-serve", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("named_model", metavar="[MODEL]", required=False)
@click.option("--config", type=click.Path(path_type=Path, dir_okay=False), help="TOML file. [default: built in]")
@click.option(
    "--only",
    multiple=True,
    metavar="PART",
    help=f"Run this part only: {', '.join(PARTS)}, or a service of the configuration; may be repeated.",
)
@click.option("--bus", help="memory:// or pulsar://HOST:PORT. [default: as configured]")
@click.option(
    "--host", envvar="TOKENGRID_HOST", help="Address to listen on. [default: TOKENGRID_HOST, or as configured]"
)
@click.option("--port", type=click.IntRange(0, 65535), help="Port the gateway listens on; 0 = any free one.")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Port for /metrics, which needs no token. With --workers: the first worker's; the others take the next ports.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, MAX_WORKERS),
    help="Gateway processes that share the port; needs --only gateway. SIGHUP restarts them one by one.",
)
@click.option(
    "--model",
    help="The same as MODEL: PATH.gguf, hf:OWNER/NAME/FILE, a configured model, or the provider's name of one.",
)
@click.option("--provider", help="Who provides the model, for instance openai.")
@click.option("--base-url", help="Where the provider's API is.")
@click.option("-o", "--option", multiple=True, metavar="NAME=VALUE", help="Another option of the provider.")
@click.option("--check", "check_only", is_flag=True, help="Say what would run, or all that is wrong, and exit.")
@click.option("--log-format", type=click.Choice(get_args(LogForm)), default="auto", show_default=True)
@click.option("--log-level", type=click.Choice(get_args(LogLevel)), default="info", show_default=True)
@version_option("tokengrid-serve")
@take_mlc_flags
def serve(
    *,
    named_model: str | None,
    config: Path | None,
    only: tuple[str, ...],
    bus: str | None,
    host: str | None,
    port: int | None,
    metrics_port: int | None,
    workers: int | None,
    model: str | None,
    provider: str | None,
    base_url: str | None,
    option: tuple[str, ...],
    check_only: bool,
    log_format: LogForm,
    log_level: LogLevel,
    mlc: MlcFlags,
) -> None:
    """Serve text completion, prompts and agents through a gateway, all in this process unless --only says otherwise.

    Without a configuration it serves the small built-in demo model. SIGTERM, SIGHUP and Ctrl-C let running streams
    finish within the configured time; a second SIGTERM or Ctrl-C ends at once.

    The flags of `mlc_llm serve` are understood too: doors/docs/mlc-llm.md.

    Exit codes: 0 stopped, 1 error, 2 wrong usage, 130 or 143 stopped at once.
    """
    if None not in (model, named_model):
        raise click.UsageError("MODEL and --model are the same; give one of them")
    if config is None and (unknown := [part for part in only if part not in PARTS]):
        raise click.UsageError(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    mlc.check()
    model = model or named_model
    options = {**mlc.options, **read_provider_options(base_url, option)}
    if model is None and (provider or options) and not (provider and check_only):
        describing = "--provider, --base-url, --option, --mode and --overrides"
        raise click.UsageError(f"{describing} describe a model: give its name with --model")
    if model is None and mlc.models:
        raise click.UsageError("--additional-models needs a first model: give its name as MODEL")
    order = ServeOptions(
        file=config,
        only=only,
        bus=bus,
        host=host,
        port=port,
        metrics_port=metrics_port,
        workers=workers,
        model=model,
        provider=provider,
        options=options,
        origins=mlc.origins,
        key=mlc.key,
        allow_credentials=mlc.allow_credentials,
        additional_models=mlc.models,
        log_form=log_format,
        log_level=log_level,
    )
    run_server(order, check_only=check_only)


def run_server(order: ServeOptions, *, check_only: bool = False) -> None:
    """Serve, or only check; a failure ends the command with a sentence."""
    # Imported only after the arguments were checked, so that --help and usage errors stay quick.
    from tg_serve.structlog_import import import_structlog

    import_structlog()
    from tg_schema import TgError
    from tg_serve import launcher

    if check_only:
        tell_check(*launcher.check(order))
        return
    try:
        launcher.serve(order, announce)
    except TgError as error:
        raise Failure(error.message) from None


def tell_check(would_run: str, findings: Sequence[str]) -> None:
    """Say what a check has found; errors end the command."""
    for finding in findings:
        notify(finding)
    if findings:
        raise click.exceptions.Exit(EXIT_FAILED)
    click.echo(would_run)
