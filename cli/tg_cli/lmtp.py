"""`tg-lmtp`: prompts with parameters to a model over LMTP, on a terminal or through a pipe."""

import click

from tg_cli.invoke_options import find_url, gateway_options


@click.command("tg-lmtp", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("model")
@gateway_options
def talk_lmtp(*, model: str, url: str | None, timeout: float) -> None:
    """Complete prompts with MODEL over LMTP, LMQL's protocol; tg-models lists the models.

    Each line is a prompt, with parameters at its end: "Once upon a time temperature=1.2 max_tokens=20". A line such as
    "[794, 329] top_logprobs=3" has token ids, and shows tokens with their log-probabilities. Ctrl-C stops an answer,
    Ctrl-D or "quit" ends. Through a pipe the first failure ends it.

    The bearer token is taken from TOKENGRID_TOKEN or TRUSTGRAPH_TOKEN.

    Exit codes: 0 done, 1 error, 2 wrong usage, 130 interrupted, 141 the reader of the output has left.
    """
    # Import the parts for a call only after the arguments were checked: --help stays quick.
    from tg_cli.invocation import run_call
    from tg_cli.lmtp_session import run_lmtp

    run_call(run_lmtp(find_url(url), timeout, model))
