import pytest

from tg_llama.chat.chat_template import ChatTemplate
from tg_llama.chat.name_guard import NameGuard, Plain
from tg_schema.errors import BadRequest, Unavailable

CHATML = """
{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

WITH_DEFAULT_SYSTEM = (
    "{% if messages[0]['role'] != 'system' %}<s>Be kind.</s>{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
)

NO_SYSTEM_ROLE = """{{ bos_token }}
{%- for message in messages -%}
{%- if message.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif -%}
{{ '<start_of_turn>' + message.role + '\\n' + message.content | trim + '<end_of_turn>\\n' }}
{%- endfor -%}
{{ '<start_of_turn>model\\n' }}"""

SYSTEM_IN_USER_TURN = """{{- bos_token }}
{%- if messages[0].role == 'system' %}{% set first = messages[0].content %}{% set rest = messages[1:] %}
{%- else %}{% set first = none %}{% set rest = messages %}{% endif %}
{%- for m in rest %}[INST] {% if first is not none %}<<SYS>>{{ first }}<</SYS>>
{% endif %}{{ m.content }} [/INST]{% endfor %}"""


FIRST_APART = """{%- set first = [messages[0]] -%}
{%- for m in first + messages[1:] %}{{ '<' + m.role + '>' + m.content }}{% endfor %}<assistant>"""

IGNORES_SYSTEM = "{% for m in messages if m.role == 'user' %}Q: {{ m.content }}\nA:{% endfor %}"


def made(source: str | None, seconds: float = 5.0) -> ChatTemplate:
    return ChatTemplate(source, {"bos_token": "<bos>", "eos_token": "</s>"}, NameGuard(()), seconds)


def rendered(template: ChatTemplate, *texts: str, system: str = "") -> str:
    pieces = template.render(system, texts)
    return "".join(piece.text if isinstance(piece, Plain) else piece for piece in pieces)


@pytest.mark.parametrize(
    ("source", "alone", "with_system"),
    [
        (None, " P ", " S \n\n P "),
        (
            CHATML,
            "<|im_start|>user\n P <|im_end|>\n<|im_start|>assistant\n",
            "<|im_start|>system\n S <|im_end|>\n<|im_start|>user\n P <|im_end|>\n<|im_start|>assistant\n",
        ),
        (WITH_DEFAULT_SYSTEM, "<s>Be kind.</s><user> P ", "<system> S <user> P "),
        (
            NO_SYSTEM_ROLE,
            "<bos><start_of_turn>user\nP<end_of_turn>\n<start_of_turn>model\n",
            "<bos><start_of_turn>user\nS\n\nP<end_of_turn>\n<start_of_turn>model\n",
        ),
        (SYSTEM_IN_USER_TURN, "<bos>[INST]  P  [/INST]", "<bos>[INST] <<SYS>> S <</SYS>>\n P  [/INST]"),
        (IGNORES_SYSTEM, "Q:  P \nA:", "Q:  S \n\n P \nA:"),
        (FIRST_APART, "<user> P <assistant>", "<system> S <user> P <assistant>"),
    ],
    ids=[
        "none",
        "chatml",
        "own system text",
        "refuses the role",
        "in the user's turn",
        "ignores the role",
        "first apart",
    ],
)
def test_texts_are_where_the_template_puts_them(source: str | None, alone: str, with_system: str) -> None:
    template = made(source)
    assert rendered(template, " P ") == alone
    assert rendered(template, " P ", system=" S ") == with_system


def test_the_texts_of_a_chat_do_not_pass_through_the_template() -> None:
    pieces = list(
        made("{{ messages[0].content }}{{ messages[0].content | length }}").render("", ["{{ 1 }}\ue0000\ue001"])
    )
    assert Plain("{{ 1 }}\ue0000\ue001") in pieces
    assert pieces[-1] == str(len("\u2003\ue0001\ue001\u2003"))


def test_todays_date_is_known_to_templates() -> None:
    text = rendered(made("{{ strftime_now('%Y') }}:{{ messages[-1].content }}"), "P")
    assert len(text) == len("2026:P")


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0].content",
        "no prompt in it",
        "{{ raise_exception('never') }}",
        "{{ messages.pop() }}{{ messages[0].content }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}{{ messages[0].content }}",
        "{{ messages[0].content }}{{ 'x' * 10 ** 10 }}",
        "{{ messages[0].content }}{{ ('x' * 9) * 9 }}",
        "{{ messages[0].content }}{% for i in range(10 ** 9) %}{% endfor %}",
        "{{ messages[0].content }}{{ 9999 ** 9999 }}",
        "{{ messages[0].content }}{{ 1 / 0 }}",
        "{{ messages[0].content }}{{ missing.field }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}{{ messages[0].content }}",
    ],
)
def test_a_broken_or_hostile_template_is_refused_in_words(source: str) -> None:
    with pytest.raises(Unavailable, match="chat template cannot be rendered"):
        made(source)


def test_a_template_without_end_is_left_behind() -> None:
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}{{ messages[0].content }}"
    with pytest.raises(Unavailable, match="come to an end"):
        made(loop, seconds=0.05)


@pytest.mark.parametrize(
    ("source", "between"),
    [
        (CHATML, "<|im_end|>\n<|im_start|>assistant\n A <|im_end|>\n<|im_start|>user\n"),
        (NO_SYSTEM_ROLE, "<end_of_turn>\n<start_of_turn>assistant\nA<end_of_turn>\n<start_of_turn>user\n"),
        (FIRST_APART, "<assistant> A <user>"),
    ],
    ids=["chatml", "trims", "first apart"],
)
def test_a_conversation_has_all_turns(source: str, between: str) -> None:
    template = made(source)
    assert template.knows_history
    for system in ("", "S"):
        before, after = rendered(template, "P", system=system).split("P")
        text = rendered(template, *[" P ", " A "] * 3, " P ", system=system)
        assert text == before + between.join([" P " if " A " in between else "P"] * 4) + after


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% for m in messages %}{{ loop.index }}: {{ m.content }}{% endfor %}", "1: P2: A3: P"),  # counts
        ("{% for m in messages %}{{ m.content }}{% endfor %}{% if messages|length > 2 %}long{% endif %}", "PAPlong"),
    ],
)
def test_a_template_may_treat_turns_differently(source: str, text: str) -> None:
    template = made(source)
    assert template.knows_history
    assert rendered(template, "P", "A", "P") == text


@pytest.mark.parametrize(
    "source",
    [
        None,
        "{% for m in messages %}{% if loop.last %}{{ m.content }}{% endif %}{% endfor %}",  # forgets
        "{% if messages|length > 2 %}{{ raise_exception('one turn only') }}{% endif %}{{ messages[-1].content }}",
        "{{ messages[0].content }}{% for m in messages[1:] %}{{ m.content }}{{ m.content }}{% endfor %}",
    ],
)
def test_a_template_that_loses_or_repeats_turns_has_no_conversations(source: str | None) -> None:
    template = made(source)
    assert not template.knows_history
    assert "P" in rendered(template, "P")


def test_what_a_template_refuses_only_later_is_a_wrong_request() -> None:
    source = (
        "{% for m in messages %}{{ m.content }}{% endfor %}"
        "{% if messages|length > 6 %}{{ raise_exception('too long') }}{% endif %}"
    )
    template = made(source)
    assert rendered(template, "P", "A", "P") == "PAP"
    with pytest.raises(BadRequest, match="cannot express the conversation"):
        template.render("", ["P", "A", "P", "A", "P", "A", "P"])


@pytest.mark.parametrize(
    ("source", "system", "few", "many"),
    [
        ("{% for m in messages[-6:] %}{{ m.content }}{% endfor %}", "", 5, 7),
        ("{% for m in messages if m.role != 'system' or messages|length < 6 %}{{ m.content }}{% endfor %}", "S", 3, 5),
        ("{% for m in messages + messages[6:] %}{{ m.content }}{% endfor %}", "", 5, 7),
    ],
    ids=["loses turns", "loses the system", "repeats the first"],
)
def test_a_template_that_loses_or_repeats_texts_later_is_refused(source: str, system: str, few: int, many: int) -> None:
    template = made(source)
    assert template.knows_history
    assert rendered(template, *"PAPAPAPAP"[:few], system=system) == f"{system}{'PAPAPAPAP'[:few]}"
    with pytest.raises(BadRequest, match="cannot express the conversation"):
        template.render(system, "PAPAPAPAP"[:many])


@pytest.mark.parametrize("mark", ["\ue0001\ue001", "\ue0007\ue001", f"\ue000{'9' * 5000}\ue001"])
def test_a_template_that_writes_a_mark_itself_is_refused(mark: str) -> None:
    with pytest.raises(BadRequest, match="cannot express the conversation"):
        made("{{ messages[0].content }}" + mark).render("", ["P"])
