"""What interprets a client's or a model's input, each as a function: it returns, or refuses by an error of ours."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, Final

from tests.hostile_inputs.numbers import NUMBERS
from tests.hostile_inputs.schemas import make_schemas, make_values
from tests.hostile_inputs.texts import Use, attack, make_patterns, make_templates, own_patterns
from tg_base.llm import LlmChunk, object_schema
from tg_base.llm.answer_form import AnswerForm
from tg_base.runtime import WorkerPool
from tg_flow.prompt.meter import Meter, TooMuchWork
from tg_flow.prompt.prompt_service import MOST_SECONDS, MOST_WORK
from tg_flow.prompt.prompt_template import TemplateText
from tg_flow.prompt.template_syntax import Refused
from tg_llama.chat.template_sandbox import SandboxedTemplate, TemplateEndless, TemplateFailed, within
from tg_llama.grammar.json_grammar import json_grammar
from tg_llama.grammar.parameter_types import ParameterTypes
from tg_llama.grammar.regex_grammar import choice_grammar, regex_grammar
from tg_llama.grammar.token_grammars import find_error
from tg_llama.tools.tool_format import TOOL_FORMATS
from tg_llama.tools.tool_grammar import tool_grammar
from tg_picker.extproc.model_request import read_model_request, rename_model
from tg_schema import TextCompletionRequest, TgError, Tool, encode

Case = tuple[str, Callable[[], object]]
"""Its name, and what it does."""

CHECK_SECONDS: Final = 0.05
"""CPU time of a check in a worker process, which is ended then; outside of tests it has 5 s."""
SANDBOX_SECONDS: Final = 0.2
PATTERN_CHARACTERS: Final = 20_000
"""At which an expression that takes quadratic time takes seconds."""
REFUSALS: Final = (TgError, Refused, TooMuchWork, TemplateFailed, TemplateEndless)


def make_cases(seed: int, size: int) -> Iterator[Case]:
    """All of them."""
    object_schema.CHECK_SECONDS = CHECK_SECONDS
    random, checkers, runner = Random(seed), WorkerPool(), asyncio.Runner()
    for name, schema in make_schemas(random, size):
        yield f"answer: {name}", lambda: runner.run(_check(schema, size, checkers))  # noqa: B023 - called before the next is made
        yield f"grammar: {name}", partial(json_grammar, schema)
        yield f"types: {name}", partial(ParameterTypes(schema).of, schema)
        for form in {form.syntax: form for form in TOOL_FORMATS}.values():
            call = partial(tool_grammar, form, [Tool("f", parameters=schema)], several=True)
            yield f"call as {form.syntax}: {name}", call
    for pattern in make_patterns(random, size):
        yield f"regex: {pattern[:80]}", partial(_compile, pattern)
    yield "choice", lambda: find_error(choice_grammar(tuple("ab" * at + "c" * (900 - at) for at in range(64))))
    for template in make_templates(size):
        yield f"prompt template: {template[:80]}", partial(_render, template)
        yield f"chat template: {template[:80]}", partial(_render_in_sandbox, template)
    for name, number in NUMBERS.items():
        yield f"tg-pick: {name}", partial(_pick, number)
    for name, own in own_patterns():
        yield f"own expression: {name}", partial(_search, own)
    runner.run(checkers.aclose())
    runner.close()


async def _check(schema: dict[str, Any], size: int, checkers: WorkerPool) -> None:
    request = TextCompletionRequest(prompt="p", schema=schema, tools=(Tool("f", parameters=schema, strict=True),))
    form = await AnswerForm.of(request, checkers)
    assert form is not None
    for value in make_values(size):
        with suppress(TgError):
            await form.check_answer((LlmChunk(encode(value).decode()),), streamed=False)


def _compile(pattern: str) -> None:
    find_error(regex_grammar(pattern))


def _render(template: str) -> None:
    variables = {"values": list(range(1000)), "text": "text" * 25}
    TemplateText("t", template).render(variables, Meter(MOST_WORK, MOST_SECONDS))


def _render_in_sandbox(template: str) -> None:
    compiled = SandboxedTemplate(template, {"text": "text" * 25})
    within(SANDBOX_SECONDS, lambda: compiled.render([{"role": "user", "content": "u"}] * 50))


def _pick(number: bytes) -> None:
    body = b'{"model":"m","max_tokens":%b,"messages":[{"role":"user","content":"q"}]}' % number
    read_model_request(body)
    rename_model(body, "n")


def _search(use: Use) -> None:
    for text in attack(use.pattern, PATTERN_CHARACTERS):
        look: Any = getattr(use.pattern, use.way)
        look(text if isinstance(use.pattern.pattern, str) else text.encode())
