"""Templates: what they can do, what they must not, and that no template can do much of it."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from tg_base.config import Config
from tg_base.config.model import PromptsConfig, TemplateConfig
from tg_base.config.reader import parse_config
from tg_flow.prompt import PromptTemplate, Rendering, Templates
from tg_flow.prompt.filters import FILTERS
from tg_flow.prompt.meter import Meter
from tg_flow.prompt.prompt_service import variables_of
from tg_schema import TgError
from tg_schema.errors import BadRequest, NotFound

DOCUMENT = "x" * 1_000_000
WORDS = "a b " * 250_000


def template(source: str, *, system: str = "") -> PromptTemplate:
    config = Config(prompts=PromptsConfig(system=system, templates={"t": TemplateConfig(prompt=source)}))
    return Templates.of(config).get("t")


def rendered(source: str, **variables: Any) -> str:
    return template(source).render(variables, Meter(1_000_000, 5)).prompt


@pytest.mark.parametrize(
    ("source", "variables", "text"),
    [
        ("{{ a }} {{ b }} {{ c }}", {"a": "é", "b": 1.5, "c": None}, "é 1.5 null"),
        ("{{ a }} {{ b }}", {"a": {"x": [1, True]}, "b": ["é"]}, '{"x":[1,true]} ["é"]'),
        ("{% for a in l %}\n  {{ loop.index }}. {{ a.n|upper }}\n{% endfor %}\n.", {"l": [{"n": "a"}, {"n": "b"}]},
         "  1. A\n  2. B\n."),
        ("{% for k, v in d.items() %}{{ k }}={{ v }} {% endfor %}.", {"d": {"a": 1, "b": 2}}, "a=1 b=2 ."),
        ("{% for i in l if i > 1 %}{{ i }}{% else %}none{% endfor %}", {"l": [1]}, "none"),
        ("{% for i in range(4) %}{{ loop.cycle('a', 'b') }}{% endfor %}", {}, "abab"),
        ("{{ order.items }} {{ order.n }}", {"order": {"items": [1], "n": 2}}, "[1] 2"),
        ("{{ a|default('none') }}{% if b is defined %}{{ b }}{% endif %}", {}, "none"),
        ("{{ a[:3] ~ '...' ~ 1 }} {{ 'b' in a }} {{ a[-1] }}", {"a": "abcd"}, "abc...1 true d"),
        ("{{ 2 * 3 + 1 }} {{ 7 // 2 }} {{ 7 % 2 }} {{ 2 ** 3 }} {{ -1 }} {{ '-' * 3 }}", {}, "7 3 1 8 -1 ---"),
        ("{{ 'a' + b if b else c }}", {"b": "b"}, "ab"),
        ("{{ l|map(attribute='n')|select('gt', 1)|join(', ') }}", {"l": [{"n": 1}, {"n": 2}, {"n": 3}]}, "2, 3"),
        ("{{ l|sum }}", {"l": [0.1] * 10}, "0.9999999999999999"),
        ("{{ l|selectattr('n', 'eq', 2)|list }} {{ l|sum(attribute='n') }}", {"l": [{"n": 1}, {"n": 2}]},
         '[{"n":2}] 3'),
        ("{{ l|sort|first }}{{ l|max }}{{ l|length }}{{ l|unique|list }}", {"l": [2, 1, 2]}, "123[2,1]"),
        ("{{ d|dictsort }} {{ d|items|list }}", {"d": {"b": 1, "a": 2}}, '[["a",2],["b",1]] [["b",1],["a",2]]'),
        ("{{ a|replace('a', 'oo')|title }} {{ a|indent(2, true) }}", {"a": "a b\nc"}, "Oo B\nc   a b\n  c"),
        ("{{ a|tojson(indent=2) }}", {"a": {"b": 1}}, '{\n  "b": 1\n}'),
        ("{{ a.strip().upper() }} {{ a.split(',')[1] }}", {"a": " a,b "}, "A,B b "),
        ("{{ 2.567|round(1) }} {{ '7'|int + 1 }} {{ a|truncate(8, leeway=0) }} {{ a|wordcount }}", {"a": "one two 3rd"},
         "2.6 8 one... 3"),
        ("{% set a = 1 %}{% with b = 2 %}{{ a }}{{ b }}{% endwith %}{% raw %}{{ x }}{% endraw %}", {}, "12{{ x }}"),
        ("{# #}<b>{{ a }}</b>", {"a": "<&>"}, "<b><&></b>"),
        ("line\n", {}, "line"),
    ],
)  # fmt: skip
def test_what_templates_can_do(source: str, variables: dict[str, Any], text: str) -> None:
    assert rendered(source, **variables) == text


def test_values_are_never_rendered() -> None:
    attack = "{{ 7 * 7 }}{% for i in range(9) %}x{% endfor %}{{ self.__init__ }}{# gone #}"
    assert rendered("{{ a }}{{ a|upper|lower|replace('q', a) }}", a=attack) == attack + attack.lower()
    both = template("{{ a }}", system="S {{ a }}").render({"a": attack}, Meter(10_000, 5))
    assert both == (f"S {attack}", attack)


@pytest.mark.parametrize(
    "source",
    [
        "{{ a.__class__ }}",
        "{{ a['__class__'] }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ [a]|map(attribute='__class__')|list }}",
        "{{ 'abc'|map(attribute='__class__')|list }}",
        "{{ a|attr('__class__') }}",
        "{{ '{0.__class__}'.format(a) }}",
        "{{ a.format }}",
        "{{ range.__globals__ }}",
        "{{ range(2).__class__ }}",
        "{{ range }}",
        "{{ a.upper }}",
        "{{ self }}",
        "{{ self._TemplateReference__context }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ lipsum.__globals__['os'] }}",
        "{{ namespace() }}",
        "{{ get_flashed_messages.__globals__ }}",
        "{{ config }}",
        "{% for x in [1] %}{{ loop.__class__ }}{% endfor %}",
        "{% for x in [1] %}{{ loop._iterator }}{% endfor %}",
        "{% for x in [1] %}{{ loop(1) }}{% endfor %}",
        "{% for x in [1] %}{{ loop }}{% endfor %}",
        "{{ l.append(1) }}",
        "{{ l.pop() }}",
        "{{ d.update({'a': 1}) }}",
        "{{ d.get.__self__ }}",
        "{{ a.encode() }}",
        "{{ a() }}",
        "{{ (a|upper)() }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{% from 'os' import path %}",
        "{% extends 'x' %}",
        "{% block x %}{% endblock %}",
        "{% autoescape true %}{% endautoescape %}",
        "{% do a %}",
        "{% debug %}",
        "{% call a() %}{% endcall %}",
        "{% filter upper %}{% endfilter %}",
    ],
)
def test_escapes_fail(source: str) -> None:
    known = {"a": "text", "l": [1], "d": {"b": 1}}

    def compile_and_render() -> None:
        made = template(source)
        made.render({name: known[name] for name in made.variables & known.keys()}, Meter(1_000_000, 5))

    with pytest.raises(BadRequest) as refused:
        compile_and_render()
    assert "object at" not in refused.value.message
    assert "jinja" not in refused.value.message.lower()


NESTED = "{% for i in range(9999) %}{% for j in range(9999) %}{% for k in range(9999) %}"
BOMBS = [
    "{{ 'a' * 10**8 }}",
    "{{ 10**8 * 'a' }}",
    "{{ 9**9**9**9 }}",
    "{{ 2 ** 100000000 }}",
    "{% set a = 9 %}" + "{% set a = a * a %}" * 50 + "{{ a }}",
    "{{ [0] * 10**8 }}",
    "{{ range(10**9)|list }}",
    NESTED + "{% endfor %}" * 3,
    NESTED + "x" + "{% endfor %}" * 3,
    "{% for i in words %}{% for j in words %}{% endfor %}{% endfor %}",
    "{{ 'a'|center(10**9) }}",
    "{{ '%1000000000d'|format(1) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ 'a'.ljust(10**9) }}",
    "{{ 'a'.zfill(10**9) }}",
    "{{ '\t'.expandtabs(10**9) }}",
    "{{ 'a'|indent(10**9) }}",
    "{{ words|replace(' ', '\n')|indent(100) }}",
    "{{ 1|tojson(indent=10**9) }}",
    "{{ document|replace('', words) }}",
    "{{ document|replace('x', document) }}",
    "{{ range(10000)|join(document) }}",
    "{{ 1.5|round(10**9, 'ceil') }}",
    "{{ [1]|batch(10**9, 0)|list }}",
    "{% set a = 'xxxx' %}" + "{% set a = a ~ a %}" * 40 + "{{ a|length }}",
    "{% set a = 'xxxx' %}" + "{% set a = a + a %}" * 40 + "{{ a|length }}",
    "{% set a = [1] %}" + "{% set a = a + a %}" * 40 + "{{ a|length }}",
    "{% set a = [1] %}" + "{% set a = [a, a, a, a] %}" * 40 + "{{ a }}",
    "{% set n = namespace(a='x') %}{% for i in range(99) %}{% set n.a = n.a ~ n.a %}{% endfor %}",
    "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "{% set a %}{{ document }}{% endset %}",
    "{% for i in [1] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "{{ range(10000)|map('string')|map('replace', '0', '')|map('default', document, true)|list|tojson }}",
    "{% set l = range(10000)|map('string')|map('default', document)|list %}{{ l == l }}{{ l|join }}",
    "{{ lists|sum(start=[]) }}",
    "{% for i in range(10000) %}{% if words.split()|unique|list|sort|length == 1 %}{% endif %}{% endfor %}",
    "{% for i in range(10000) %}{% if document.upper() in words %}{% endif %}{% endfor %}",
    "{% for i in range(10000) %}{% if words|title|wordcount == 1 %}{% endif %}{% endfor %}",
    "{% for i in range(10000) %}{% if document[1:] == words %}{% endif %}{% endfor %}",
    (
        "{% for i in range(9999) %}{% for x in range(9999)|map('string')|map('upper')|select('eq', 'q') %}{% endfor %}"
        "{% endfor %}"
    ),
    "{{ document }}{{ document }}{{ document }}",
    "{% for i in range(10000) %}" + "y" * 50_000 + "{% endfor %}",
    "{{ " + "(" * 40_000 + "1" + ")" * 40_000 + " }}",
    "{{ " + "1 + " * 20_000 + "1 }}",
    "{{ " + "not " * 20_000 + "1 }}",
    "{{ a" + ".a" * 20_000 + " }}",
    "{{ " + "~".join(["'a'"] * 20_000) + " }}",
    "{% if 1 %}" * 1000 + "{% endif %}" * 1000,
    "{% for i in [1] %}" * 30 + "{% endfor %}" * 30,
    "{{ " + "9" * 5000 + " }}",
    "y" * 100_001,
]


@pytest.mark.parametrize("source", BOMBS, ids=range(len(BOMBS)))
async def test_bombs_fail_soon_and_the_loop_runs_on(source: str) -> None:
    variables = {"document": DOCUMENT, "words": WORDS, "lists": [[1]] * 100_000, "a": {}}
    held_up = 0.0

    async def watch() -> None:
        nonlocal held_up
        while True:
            started = time.perf_counter()
            await asyncio.sleep(0)
            held_up = max(held_up, time.perf_counter() - started)

    async def compile_and_render() -> None:
        made = await asyncio.to_thread(template, source)
        await Rendering().render(made, {name: variables[name] for name in made.variables})

    watching = asyncio.create_task(watch())
    started = time.perf_counter()
    with pytest.raises(BadRequest):
        await compile_and_render()
    took = time.perf_counter() - started
    watching.cancel()
    # A quiet machine needs a tenth of it; unlimited, a bomb takes minutes.
    assert took < 10
    assert held_up < 5


async def test_a_long_render_ends_well_on_a_thread() -> None:
    long = template("{% for i in l %}{{ i }}{% for j in i %}{{ j }}{% endfor %}{% endfor %}")
    values = [["a", "b", "c"]] * 3000
    with pytest.raises(BadRequest, match="does too much work"):
        await Rendering().render(template(NESTED + "{% endfor %}" * 3), {})
    assert (await Rendering().render(long, {"l": values})).prompt == '["a","b","c"]abc' * 3000


@pytest.mark.parametrize(
    ("source", "variables", "words"),
    [
        ("{{ a }} {{ b }}", {"a": 1}, 'template "t", line 1: the variable "b" is missing'),
        ("\n\n{{ a.name }}", {"a": {}}, 'template "t", line 3: a value has no field "name"'),
        ("{{ a ~ 'x' }}", {}, 'the variable "a" is missing'),
        ("{{ a + 'x' }}", {}, 'the variable "a" is missing'),
        ("{{ a * 2 }}", {}, 'the variable "a" is missing'),
        ("{{ a[1:] }}", {}, 'the variable "a" is missing'),
        ("{{ a|upper }}", {}, 'the variable "a" is missing'),
        ("{{ a|join }}", {}, 'the variable "a" is missing'),
        ("{{ a|tojson }}", {}, 'the variable "a" is missing'),
        ("{{ a.b() }}", {}, 'the variable "a" is missing'),
        ("{% for i in a %}{% endfor %}", {}, 'the variable "a" is missing'),
        ("{% if a %}{% endif %}", {}, 'the variable "a" is missing'),
        ("{% if a > 1 %}{% endif %}", {}, 'the variable "a" is missing'),
        ("{{ a }}", {"a": 1, "zz": 2}, 'template "t" has no variable "zz"; it has a'),
        ("x", {"zz": 2}, 'template "t" has no variable "zz"; it has none'),
        ("{{ a + 1 }}", {"a": "x"}, 'template "t", line 1: a value has a type'),
        ("{{ a // 0 }}", {"a": 1}, "or a number a size, that the template cannot use here"),
        ("{{ a|truncate(1) }}", {"a": "long"}, "or a number a size, that the template cannot use here"),
        ("{{ 1 ~ (1).x }}", {}, 'a value has no field "x"'),
        ("{{ a }}", {"a": "  "}, "renders an empty prompt"),
    ],
)
def test_variables_that_do_not_fit_are_named(source: str, variables: dict[str, Any], words: str) -> None:
    with pytest.raises(BadRequest) as refused:
        template(source).render(variables, Meter(1_000_000, 5))
    assert words in refused.value.message


def test_the_system_template_has_the_same_variables() -> None:
    both = template("{{ a }}", system="Be {{ b }}.")
    assert both.render({"a": 1, "b": "brief"}, Meter(1_000, 5)) == ("Be brief.", "1")
    with pytest.raises(BadRequest, match='system template, line 1: the variable "b" is missing'):
        both.render({"a": 1}, Meter(1_000, 5))


def test_a_template_may_have_a_system_text_of_its_own() -> None:
    own = TemplateConfig(prompt="p", system="own")
    templates = Templates.of(Config(prompts=PromptsConfig(system="all", templates={"t": own})))
    assert templates.get("t").render({}, Meter(1_000, 5)) == ("own", "p")


@pytest.mark.parametrize(
    ("table", "line", "words"),
    [
        ('prompt = """\none\n{{ two\n"""', 4, 'template "t", its line 2: '),
        ('prompt = """\none\n{% for a in b %}"""', 4, 'template "t", its line 2: '),
        ('prompt = "{{ a|nope }}"', 2, 'there is no filter "nope"; known are '),
        ('prompt = "{% if a is nope %}{% endif %}"', 2, 'there is no test "nope"; known are '),
        ('prompt = "{% macro a() %}{% endmacro %}"', 2, '"macro" is not available in prompt templates'),
        ('prompt = "{{ 1e400 }}"', 2, "a number is too large"),
        ('prompt = "{{ [a] }}"', 2, "lists and tables can hold only constants"),
        ('prompt = "a"\nsystem = "{{"', 3, 'system template of "t", its line 1: '),
        ('prompt = "a"\nresponse_type = "json"\nschema.type = "objekt"', 4, "not a valid JSON schema, at type"),
        ('prompt = "a"\nresponse_type = "jsonl"\nschema = { "$ref" = "#/nowhere" }', 4, "not a valid JSON schema"),
        ('prompt = "a"\nschema = { type = "object" }', 3, 'a schema needs response_type = "json" or "jsonl"'),
    ],
)
def test_a_broken_template_is_named_with_file_and_line(table: str, line: int, words: str) -> None:
    config = parse_config(f"[prompts.templates.t]\n{table}\n", Path("tg.toml"))
    with pytest.raises(BadRequest) as refused:
        Templates.of(config)
    assert refused.value.message.startswith(f"tg.toml, line {line}: ")
    assert words in refused.value.message


def test_an_unknown_id_lists_the_known_ones() -> None:
    many = {f"t{number:02}": TemplateConfig(prompt="p") for number in range(25)}
    templates = Templates.of(Config(prompts=PromptsConfig(templates=many)))
    with pytest.raises(NotFound, match=r'there is no template "nope"; known are t00, t01, .*, t19 and 5 more'):
        templates.get("nope")
    with pytest.raises(BadRequest, match="id is missing"):
        templates.get(None)


def test_terms_are_json_values() -> None:
    assert variables_of(None) == {}
    terms = {"a": '"x"', "b": "1", "c": '{"d": [true, null]}'}
    assert variables_of(terms) == {"a": "x", "b": 1, "c": {"d": [True, None]}}


@pytest.mark.parametrize("term", ["", "x", "NaN", '"\\ud800"', "[" * 100_000, "9" * 5000, "{'a': 1}", "1e999"])
def test_a_term_that_is_not_json_is_named(term: str) -> None:
    with pytest.raises(TgError, match='the variable "bad" is not JSON text') as refused:
        variables_of({"good": "1", "bad": term})
    assert isinstance(refused.value, BadRequest)


def test_a_value_nested_as_deep_as_json_goes_is_refused_or_written() -> None:
    nested: Any = 1
    for _ in range(500_000):
        nested = [nested]
    with pytest.raises(BadRequest, match="nested too deep"):
        template("{{ a }}").render({"a": nested}, Meter(50_000_000, 60))


def test_every_filter_is_documented() -> None:
    document = (Path(__file__).parents[2] / "docs" / "prompts.md").read_text()
    aliases = {"count", "d"}
    filters = document.partition("**Filters**: `")[2].partition("`")[0].split()
    assert set(filters) - aliases == FILTERS.keys() - aliases
