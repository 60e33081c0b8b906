import pytest

from tg_llama.chat.chat_template import ChatTemplate, Hole
from tg_schema.errors import Unavailable

SYSTEM, PROMPT = Hole("system", trimmed=False), Hole("prompt", trimmed=False)

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


def test_without_a_template_the_text_is_continued() -> None:
    template = ChatTemplate(None)
    assert template.alone == (PROMPT,)
    assert template.with_system == (SYSTEM, "\n\n", PROMPT)


def test_chatml() -> None:
    template = ChatTemplate(CHATML)
    end = "<|im_end|>\n<|im_start|>assistant\n"
    assert template.alone == ("<|im_start|>user\n", PROMPT, end)
    assert template.with_system == (
        "<|im_start|>system\n",
        SYSTEM,
        "<|im_end|>\n<|im_start|>user\n",
        PROMPT,
        end,
    )


def test_a_template_with_a_system_text_of_its_own() -> None:
    template = ChatTemplate(WITH_DEFAULT_SYSTEM)
    assert template.alone == ("<s>Be kind.</s><user>", PROMPT)
    assert template.with_system == ("<system>", SYSTEM, "<user>", PROMPT)


def test_a_template_that_refuses_the_system_role_gets_it_in_the_users_turn() -> None:
    template = ChatTemplate(NO_SYSTEM_ROLE, "<bos>")
    before, after = "<bos><start_of_turn>user\n", "<end_of_turn>\n<start_of_turn>model\n"
    assert template.alone == (before, Hole("prompt", trimmed=True), after)
    assert template.with_system == (
        before,
        Hole("system", trimmed=True),
        "\n\n",
        Hole("prompt", trimmed=True),
        after,
    )


def test_a_template_that_puts_the_system_text_into_the_users_turn() -> None:
    template = ChatTemplate(SYSTEM_IN_USER_TURN, "<s>", "</s>")
    assert template.alone == ("<s>[INST] ", PROMPT, " [/INST]")
    assert template.with_system == ("<s>[INST] <<SYS>>", SYSTEM, "<</SYS>>\n", PROMPT, " [/INST]")


def test_a_template_that_ignores_the_system_role_gets_it_all_the_same() -> None:
    template = ChatTemplate("{% for m in messages if m.role == 'user' %}Q: {{ m.content }}\nA:{% endfor %}")
    assert template.with_system == ("Q: ", SYSTEM, "\n\n", PROMPT, "\nA:")


def test_todays_date_is_known_to_templates() -> None:
    (first, *_) = ChatTemplate("{{ strftime_now('%Y') }}:{{ messages[-1].content }}").alone
    assert isinstance(first, str)
    assert len(first) == len("2026:")


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
        ChatTemplate(source)


def test_a_template_without_end_is_left_behind() -> None:
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}{{ messages[0].content }}"
    with pytest.raises(Unavailable, match="come to an end"):
        ChatTemplate(loop, seconds=0.05)


def test_messages_are_a_list_as_templates_expect() -> None:
    template = ChatTemplate(FIRST_APART)
    assert template.with_system == ("<system>", SYSTEM, "<user>", PROMPT, "<assistant>")
    assert template.between == ("<assistant>", Hole("answer", trimmed=False), "<user>")


def test_a_conversation_is_laid_out_from_rounds() -> None:
    template = ChatTemplate(CHATML)
    answer = Hole("answer", trimmed=False)
    assert template.between == (
        "<|im_end|>\n<|im_start|>assistant\n",
        answer,
        "<|im_end|>\n<|im_start|>user\n",
    )
    assert template.conversation(1, system=True) == template.with_system
    assert template.conversation(3, system=True) == (
        *template.with_system[:4],
        *template.between,
        *template.with_system[3:],
    )
    names = [part.name for part in template.conversation(7, system=True) if isinstance(part, Hole)]
    assert names == ["system", *["prompt", "answer"] * 3, "prompt"]


def test_holes_of_a_conversation_are_trimmed_where_the_template_does() -> None:
    between = ChatTemplate(NO_SYSTEM_ROLE).between
    assert between is not None
    assert Hole("answer", trimmed=True) in between


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}{% if loop.last %}{{ m.content }}{% endif %}{% endfor %}",  # forgets
        "{% for m in messages %}{{ loop.index }}: {{ m.content }}{% endfor %}",  # counts
        "{% for m in messages %}{{ m.content }}{% endfor %}{% if messages|length > 2 %}long{% endif %}",
        "{% if messages|length > 2 %}{{ raise_exception('one turn only') }}{% endif %}{{ messages[-1].content }}",
        "{{ messages[0].content }}{% for m in messages[1:] %}{{ m.content }}{{ m.content }}{% endfor %}",
    ],
)
def test_a_template_that_treats_turns_differently_has_no_conversations(source: str) -> None:
    template = ChatTemplate(source)
    assert template.between is None
    assert template.alone
