"""Script -> server command, imported as `tg_cli.start` imports one."""

from tg_cli.start import start


def start_pick() -> None:
    """`tg-pick`."""
    start("tg_serve.pick", "pick")


def start_serve() -> None:
    """`tg-serve`."""
    start("tg_serve.command", "serve")


def start_serve_model() -> None:
    """`tg-serve-model`."""
    start("tg_serve.serve_model", "serve_model")
