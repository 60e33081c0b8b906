"""Running services -> one line for the user: what is served, where, and how to try it; or why it is refused."""

import shlex
from collections.abc import Sequence

from tg_schema.errors import BadRequest
from tg_serve.options import GATEWAY, ServeOptions


def describe_served(
    services: Sequence[str],
    bus: str,
    url: str | None,
    workers: int | None,
    flows: Sequence[str],
    *,
    rest: Sequence[str],
) -> str:
    """The served parts, their URL, and a command to try them.

    Args:
        services: each with what it serves.
        bus: its URL.
        url: the gateway's URL; None = this process runs no gateway.
        workers: gateway processes; None = this process is the only one.
        flows: the flows with a model.
        rest: the `tg-serve` options that start what the configuration needs and this process does not run.
    """
    served = ", ".join(services)
    if url is None:
        return f"ready: {served}, on {bus}; add what else you need: tg-serve --bus {bus} {' '.join(rest)}"
    if services and not flows:
        return f"ready: {url} serves {served}; add a model: name one with --model, or bind one in a flow of the file"
    served = served or "what is on the bus"
    served += f" by {workers} workers" if workers is not None else ""
    where = "" if url == "http://127.0.0.1:8888/" else f" -u {url}"
    where += f" -f {flows[0]}" if flows and "default" not in flows else ""
    return f'ready: {url} serves {served}; try: tg-invoke-llm{where} "be brief" "What is Apache Pulsar?"'


def find_rest(order: ServeOptions, bound: Sequence[str]) -> tuple[str, ...]:
    """The `tg-serve` options for the parts that this process leaves out and a gateway with a file waits for."""
    file = () if order.file is None else ("--config", shlex.quote(str(order.file)))
    return (*file, *(f"--only {part}" for part in (*bound, GATEWAY) if part not in order.parts))


def check_workers(order: ServeOptions, bus: str) -> None:
    """Refuse what several workers cannot do.

    Raises:
        BadRequest: the message says which options to give.
    """
    if bus == "memory://":
        raise BadRequest(
            "memory:// reaches no other process, so each worker would be alone: with --workers, give "
            "--bus pulsar://HOST:6650 and --only gateway, and run the models as processes of their own"
        )
    if order.parts != (GATEWAY,):
        raise BadRequest(
            "--workers multiplies the gateway alone: add --only gateway, and run the other parts as processes of their "
            "own, such as: tg-serve --only text-completion"
        )
