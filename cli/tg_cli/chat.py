"""`tg-chat`: a conversation with a model, on a terminal or through a pipe."""

from pathlib import Path

import click

from tg_cli.invoke_options import chat_options, find_url

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("tg-chat", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-s", "--system", help="The system prompt.")
@click.option("--history", type=_FILE, help="A conversation to continue, as /save writes it.")
@chat_options
def chat(
    *,
    system: str | None,
    history: Path | None,
    model: str | None,
    temperature: float | None,
    max_tokens: int | None,
    url: str | None,
    flow_id: str | None,
    timeout: float,
    keep: str | None,
) -> None:
    """Talk with a model. /help lists what can be typed besides messages.

    A line that ends with a backslash goes on in the next one; so does Alt-Enter. Ctrl-C stops the answer and the model,
    and keeps the conversation. Ctrl-D ends it. Through a pipe each line is a message, and answers are plain text.

    The bearer token is taken from TOKENGRID_TOKEN or TRUSTGRAPH_TOKEN.

    Exit codes: 0 done, 1 error, 2 wrong usage, 130 interrupted, 141 the reader of the output has left.
    """
    # Import the parts for a call only after the arguments were checked: --help stays quick.
    from tg_cli.attachments import make_sampling, read_history
    from tg_cli.chat_session import run_chat
    from tg_cli.conversation import ChatModel, Conversation
    from tg_cli.invocation import run_call

    conversation = Conversation(read_history(history) if history else (), file=history)
    if system is not None:
        conversation.system = system
    asked = ChatModel(model, flow_id, make_sampling(temperature, max_tokens), keep)
    run_call(run_chat(find_url(url), timeout, asked, conversation))
