"""`tg-invoke-agent`: a question to an agent; its steps and its answer as they come."""

from functools import partial

import click

from tg_cli.invoke_options import InvokeOptions, ask_options, find_url, is_piped, read_pipe


@click.command("tg-invoke-agent", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("words", nargs=-1, metavar="[QUESTION]")
@click.option("-q", "--question", "asked", help="The question, in place of QUESTION.")
@click.option("-g", "--group", multiple=True, help="Tools of this group may be used; may be repeated.")
@click.option("-s", "--state", help="The initial state of the dialog.")
@click.option("-p", "--pattern", help="How to reason, for instance plan-then-execute. [default: as the flow says]")
@click.option("-v", "--verbose", is_flag=True, help="Show every step whole, even if stderr is no terminal.")
@click.option("-C", "--collection", expose_value=False, help="For TrustGraph's scripts; has no effect.")
@click.option("-l", "--plan", expose_value=False, help="The same.")
@click.option("-x", "--explainable", is_flag=True, expose_value=False, help="The same.")
@click.option("--debug", is_flag=True, expose_value=False, help="The same.")
@ask_options
def invoke_agent(
    *,
    words: tuple[str, ...],
    asked: str | None,
    group: tuple[str, ...],
    state: str | None,
    pattern: str | None,
    verbose: bool,
    url: str | None,
    flow_id: str,
    timeout: float,
    keep: str | None,
    attach: str | None,
    after: int,
    no_streaming: bool,
    as_json: bool,
    show_usage: bool,
) -> None:
    """Ask an agent, which thinks, uses its tools, and answers.

    QUESTION may be "-" or missing: then it is read from standard input. The answer goes to standard output, and the
    steps to standard error, where a terminal shows them. The bearer token is taken from TOKENGRID_TOKEN or
    TRUSTGRAPH_TOKEN. Ctrl-C stops the agent, its model and its tools.

    Exit codes: 0 done, 1 error, 2 wrong usage, 130 interrupted, 141 the reader of the output has left.
    """
    question, groups = ("", ()) if attach else _question(words, asked, group)
    if not (question or attach):
        raise click.UsageError("QUESTION is empty: give it as an argument, or pipe it in")
    # Import the parts for a call only after the arguments were checked: --help stays quick.
    from tg_cli.agent_renderer import write_dialog
    from tg_cli.invocation import invoke
    from tg_schema import AGENT, AgentRequest

    request = AgentRequest(question, state, groups or None, streaming=not no_streaming, pattern=pattern)
    ask = InvokeOptions(find_url(url), flow_id, timeout, as_json, show_usage, keep, attach, after)
    invoke(ask, AGENT, request, partial(write_dialog, verbose=verbose))


def _question(words: tuple[str, ...], asked: str | None, group: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The question and the groups. After -q, further arguments are groups, as in TrustGraph's `-g ONE TWO`."""
    if asked is not None and words and not group:
        raise click.UsageError("the question is given twice: as an argument and with -q")
    if asked is not None:
        words, group = (asked,), (*group, *words)
    if len(words) > 1:
        raise click.UsageError("QUESTION is one argument: put it into quotes")
    if not words and not is_piped():
        raise click.UsageError("QUESTION is missing: give it as an argument, or pipe it in")
    return read_pipe() if words in {(), ("-",)} else words[0], group
