"""Which edits open the prompts or the agents anew: those of what they ask, and no others."""

from pathlib import Path

import pytest

from tg_base.config.reader import parse_config
from tg_base.server import ServiceKind
from tg_flow.agent import AgentKind
from tg_flow.prompt import PromptKind

FILE = """[models]
m.provider = "demo"
n.provider = "demo"
[routes]
r.models = ["m", "n"]
[tools]
ask = { kind = "prompt", options = { flow = "asked" } }
[flows]
f = { text-completion.model = "m", prompt = {}, agent = { model = "n", agents = ["member"] } }
asked = { text-completion.model = "m", prompt = {} }
member = { text-completion.model = "m", agent = {} }
thinking.text-completion.model = "n"
other.text-completion.model = "m"
"""


def parts(kind: ServiceKind, text: str) -> object:
    return kind.find_parts(parse_config(text, Path("tg.toml")))


def move(flow: str) -> str:
    """The file with the text completion of this flow bound to a route."""
    lines = FILE.splitlines(keepends=True)
    return "".join(line.replace('model = "m"', 'model = "r"') if line.startswith(flow) else line for line in lines)


@pytest.mark.parametrize(
    ("edited", "reopened"),
    [
        (FILE.replace('other.text-completion.model = "m"\n', ""), []),
        (FILE + 'more.text-completion.model = "n"\n', []),
        (move("other"), []),
        (FILE.replace("thinking.", "renamed."), ["agent"]),
        (move("member"), ["agent"]),
        (move("f ="), ["agent", "prompt"]),
        (move("asked"), ["agent", "prompt"]),
        (FILE.replace('flow = "asked"', 'flow = "f"'), ["agent"]),
    ],
)
def test_an_edit_opens_anew_what_asks_the_edited_flow(edited: str, reopened: list[str]) -> None:
    assert edited != FILE
    kinds: dict[str, ServiceKind] = {"agent": AgentKind(), "prompt": PromptKind()}
    assert [name for name, kind in kinds.items() if parts(kind, edited) != parts(kind, FILE)] == reopened
