"""`tg-invoke-llm`: one prompt to a model, its answer to stdout as it comes."""

from functools import partial
from operator import attrgetter
from pathlib import Path

import click

from tg_cli.invoke_options import InvokeOptions, ask_model_options, choose_flow, find_url, is_piped, read_pipe

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("tg-invoke-llm", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("system", required=False)
@click.argument("prompt", required=False)
@click.option("--schema", "schema_file", type=_FILE, help="JSON schema that the answer must satisfy.")
@click.option("--image", "images", type=_FILE, multiple=True, help="An image for PROMPT; may be repeated.")
@click.option("--history", type=_FILE, help="Earlier turns: a JSON list of messages, as tg-chat's /save writes it.")
@ask_model_options
def invoke_llm(
    *,
    system: str | None,
    prompt: str | None,
    schema_file: Path | None,
    images: tuple[Path, ...],
    history: Path | None,
    model: str | None,
    temperature: float | None,
    max_tokens: int | None,
    url: str | None,
    flow_id: str | None,
    timeout: float,
    keep: str | None,
    attach: str | None,
    after: int,
    no_streaming: bool,
    as_json: bool,
    show_usage: bool,
) -> None:
    """Ask a model: SYSTEM says how to answer, PROMPT what. A single argument is PROMPT, unless that is piped in.

    Either may be "-", and PROMPT may be missing: then it is read from standard input. The bearer token is taken from
    TOKENGRID_TOKEN or TRUSTGRAPH_TOKEN. Ctrl-C stops the model.

    Exit codes: 0 done, 1 error, 2 wrong usage, 130 interrupted, 141 the reader of the output has left.
    """
    system, prompt = ("", "") if attach else _texts(system, prompt)
    # Import the parts for a call only after the arguments were checked: --help stays quick.
    from tg_cli.attachments import make_sampling, read_history, read_image, read_schema, user_turn
    from tg_cli.invocation import invoke
    from tg_cli.renderer import write_text
    from tg_schema import TEXT_COMPLETION, TextCompletionRequest

    schema = read_schema(schema_file) if schema_file else None
    turns = read_history(history) if history else ()
    if not (prompt or turns or images or attach):
        raise click.UsageError("PROMPT is empty: give it as an argument, or pipe it in")
    request = TextCompletionRequest(
        system,
        # An image needs a turn, which then holds the prompt too.
        None if images else prompt,
        streaming=not no_streaming,
        model=model,
        sampling=make_sampling(temperature, max_tokens),
        response_format="json" if schema is not None else None,
        schema=schema,
        messages=(*turns, user_turn(prompt, [read_image(image) for image in images])) if images else turns,
    )
    ask = InvokeOptions(find_url(url), choose_flow(flow_id, model), timeout, as_json, show_usage, keep, attach, after)
    invoke(ask, TEXT_COMPLETION, request, partial(write_text, attrgetter("response")))


def _texts(system: str | None, prompt: str | None) -> tuple[str, str]:
    """System and prompt. A missing one is read from a pipe; if nothing is piped, one is enough."""
    if system == "-" and prompt == "-":
        raise click.UsageError('only one of SYSTEM and PROMPT can be "-"')
    if prompt is None and system not in {None, "-"}:
        piped = read_pipe(nothing=system) if is_piped() else system
        return ("", system) if piped is system else (system, piped)
    if prompt is None and (not is_piped() or system == "-"):
        raise click.UsageError("PROMPT is missing: give it as an argument, or pipe it in")
    if prompt is None or prompt == "-":
        return system or "", read_pipe()
    return read_pipe() if system == "-" else system or "", prompt
