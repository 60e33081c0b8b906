"""GGUF's chat template -> layouts: where the texts of the system and of each turn go in a prompt.

A template is a program from an untrusted file. It runs once for each kind of conversation, when the model is loaded, in
a sandbox, on placeholders; the text of a request never passes through it.
"""

from typing import Literal, NamedTuple, get_args

from tg_llama.chat.template_sandbox import (
    RENDER_SECONDS,
    SandboxedTemplate,
    TemplateEndless,
    TemplateFailed,
    within,
)
from tg_schema.errors import Unavailable

_EDGE = "\u2003"
"""White space that no template writes, around each placeholder: if it is missing, the template trims the text."""

_Name = Literal["system", "prompt", "answer"]
_MARKS: dict[_Name, str] = {name: f"\ue000{name}\ue001" for name in get_args(_Name)}


class Hole(NamedTuple):
    """The place for a request's text in a layout."""

    name: _Name
    trimmed: bool


Layout = tuple[str | Hole, ...]


class ChatTemplate:
    """One model's template, rendered for "a user's text", "a system's and a user's text", and a longer conversation.

    Attributes:
        alone: the layout of a prompt without system text.
        with_system: the layout of one with it. Where the template knows no system role, the system's text stands
            before the user's, in the user's turn.
        between: the layout from a user's text to the next one's, with the answer's hole in it. None if the template
            does not treat all turns alike, so conversations cannot be composed from parts.
    """

    def __init__(
        self, source: str | None, begin_text: str = "", end_text: str = "", seconds: float = RENDER_SECONDS
    ) -> None:
        """`source` None: the model has no template and simply continues the text.

        Raises:
            Unavailable: the template does not work; the message says why.
        """
        if source is None:
            prompt = Hole("prompt", trimmed=False)
            self.alone: Layout = (prompt,)
            self.with_system: Layout = (Hole("system", trimmed=False), "\n\n", prompt)
            self.between: Layout | None = None
            return
        try:
            names = {"bos_token": begin_text, "eos_token": end_text}
            within(seconds, lambda: self._find_layouts(SandboxedTemplate(source, names)))
        except TemplateEndless:
            raise Unavailable(
                "the model file's chat template does not come to an end; use another model file"
            ) from None
        except TemplateFailed:
            raise Unavailable(
                "the model file's chat template cannot be rendered; use an instruction-tuned model file"
            ) from None

    def _find_layouts(self, template: SandboxedTemplate) -> None:
        """Raises: TemplateFailed, if the template cannot be rendered."""
        self.alone = tuple(_split(template.render([_message("user", "prompt")])))
        if not _has(self.alone, "prompt"):
            raise TemplateFailed
        self.with_system = _add_system(template, self.alone)
        self.between = _find_between(template, self.alone)

    def conversation(self, turns: int, *, system: bool) -> Layout:
        """The layout of `turns` alternating turns of user and assistant, the last one the user's.

        More than one turn needs `between`.
        """
        layout = self.with_system if system else self.alone
        if turns < 2 or self.between is None:
            return layout
        prompt = next(part for part in layout if isinstance(part, Hole) and part.name == "prompt")
        at = layout.index(prompt)
        return (*layout[:at], *(prompt, *self.between) * (turns // 2), *layout[at:])


def _add_system(template: SandboxedTemplate, alone: Layout) -> Layout:
    layout = _try_layout(template, _message("system", "system"), _message("user", "prompt"))
    if _has(layout, "system") and _has(layout, "prompt"):
        return layout
    parts: list[str | Hole] = []
    for part in alone:
        parts.extend([part] if isinstance(part, str) else [Hole("system", part.trimmed), "\n\n", part])
    return tuple(parts)


def _find_between(template: SandboxedTemplate, alone: Layout) -> Layout | None:
    """The text between two prompts, if it is the same in every round and everything else is as in `alone`."""
    prompt, answer = _message("user", "prompt"), _message("assistant", "answer")
    long = _try_layout(template, prompt, answer, prompt, answer, prompt)
    holes = [part.name for part in long if isinstance(part, Hole)]
    if holes != ["prompt", "answer", "prompt", "answer", "prompt"]:
        return None
    first, second, third = (at for at, part in enumerate(long) if isinstance(part, Hole) and part.name == "prompt")
    between = long[first + 1 : second]
    whole = (*long[: first + 1], *between, long[first], *between, *long[third:])
    return between if long == whole and (*long[:first], *long[third:]) == alone else None


def _try_layout(template: SandboxedTemplate, *messages: dict[str, str]) -> Layout:
    """A conversation of placeholders; () if the template refuses it, as by "System role not supported"."""
    try:
        return tuple(_split(template.render([*messages])))
    except TemplateFailed:
        return ()


def _message(role: str, name: _Name) -> dict[str, str]:
    return {"role": role, "content": f"{_EDGE}{_MARKS[name]}{_EDGE}"}


def _has(layout: Layout, name: str) -> bool:
    return any(isinstance(part, Hole) and part.name == name for part in layout)


def _split(text: str) -> list[str | Hole]:
    """Cut a rendered conversation at its placeholders."""
    parts: list[str | Hole] = []
    while text:
        found = [(at, name) for name, mark in _MARKS.items() if (at := text.find(mark)) >= 0]
        if not found:
            return [*parts, text]
        at, name = min(found)
        before, text = text[:at], text[at + len(_MARKS[name]) :]
        trimmed = not before.endswith(_EDGE)
        if before.removesuffix(_EDGE):
            parts.append(before.removesuffix(_EDGE))
        parts.append(Hole(name, trimmed))
        text = text.removeprefix(_EDGE)
    return parts
