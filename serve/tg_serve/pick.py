"""`tg-pick`: the endpoint picker of an Envoy in front of model servers."""

import os
from pathlib import Path
from typing import get_args

import click

from tg_cli.endings import Failure
from tg_cli.entry import announce, version_option
from tg_serve.command import tell_check
from tg_serve.options import LogForm, LogLevel, PickOptions


@click.command("tg-pick", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config", type=click.Path(path_type=Path, dir_okay=False), required=True, help="TOML file.")
@click.option("--listen", metavar="HOST:PORT", help="Where to listen for Envoy. [default: as configured]")
@click.option("--http", metavar="HOST:PORT", help="Where /instances and /metrics are. [default: as configured]")
@click.option("--bus", metavar="URL", help="pulsar://HOST:6650: share the server load with other pickers and pools.")
@click.option("--check", "check_only", is_flag=True, help="Say what would be served, or all that is wrong, and exit.")
@click.option("--log-format", type=click.Choice(get_args(LogForm)), default="auto", show_default=True)
@click.option("--log-level", type=click.Choice(get_args(LogLevel)), default="info", show_default=True)
@version_option("tokengrid-serve")
def pick(
    *,
    config: Path,
    listen: str | None,
    http: str | None,
    bus: str | None,
    check_only: bool,
    log_format: LogForm,
    log_level: LogLevel,
) -> None:
    """Choose a model server for each request that Envoy asks about (external processing, protocol v1.0.0).

    Several of these processes may listen on one address: run the command again. With --bus they pick as one. At
    --log-level debug each choice is logged with its reasons.

    SIGTERM, SIGHUP and Ctrl-C let what has begun finish within 30 seconds; a second SIGTERM or Ctrl-C ends at once.

    Exit codes: 0 stopped, 1 error, 2 wrong usage, 130 or 143 stopped at once.
    """
    # Imported only after the arguments were checked, so that --help and usage errors stay quick.
    from tg_serve.structlog_import import import_structlog

    import_structlog()
    # gRPC's own lines on stderr do not have the log's form, and our own sentences cover everything a user can act on.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from tg_schema import TgError
    from tg_serve import pick_process

    order = PickOptions(config, listen, http, bus, log_format, log_level)
    try:
        if check_only:
            tell_check(*pick_process.check_pick(order))
        else:
            pick_process.pick(order, announce)
    except TgError as error:
        raise Failure(error.message) from None
