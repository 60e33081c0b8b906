"""Questions and answers -> turns: the model that a chat asks, its turns so far, and its file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from tg_cli.attachments import read_image, user_turn, write_history
from tg_cli.endings import Failure
from tg_schema import ImagePart, Message, Sampling
from tg_schema.text_completion import SYSTEM_ROLES


@dataclass(slots=True)
class ChatModel:
    """Which model to ask, and how; /model changes it. If `model` or `flow` is None, the gateway chooses it.

    `keep` is how long the gateway keeps an answer; None = as its flow says.
    """

    model: str | None
    flow: str | None
    sampling: Sampling | None
    keep: str | None


class Conversation:
    """The turns so far. A question is added only together with its answer.

    Args:
        turns: the turns to start with; system turns become `system`.
        file: the file that they were read from; `save` may overwrite it.

    Attributes:
        system: the system prompt; empty = none.
        turns: without the system turns.
    """

    def __init__(self, turns: Sequence[Message] = (), file: Path | None = None) -> None:
        self.system = "\n\n".join(turn.text for turn in turns if turn.role in SYSTEM_ROLES)
        self.turns = tuple(turn for turn in turns if turn.role not in SYSTEM_ROLES)
        self._images: tuple[ImagePart, ...] = ()
        self._files = {file.resolve()} if file else set[Path]()

    def attach(self, name: str) -> None:
        """Let the next question show an image; `~` is the home.

        Raises:
            Failure: the file cannot be read, or is no image.
        """
        try:
            self._images = (*self._images, read_image(Path(name).expanduser()))
        except click.UsageError as error:
            raise Failure(error.message) from None
        # No home folder, or a name with NUL.
        except (RuntimeError, ValueError):
            raise Failure(f"{name!r} cannot be read: the name is not valid") from None

    def ask(self, text: str) -> Message:
        """The turn that asks a question, with the attached images, which stay attached until a question is answered."""
        return user_turn(text, self._images)

    def add(self, question: Message, answer: Message) -> None:
        """Keep a question with its answer, which may be partial."""
        self.turns, self._images = (*self.turns, question, answer), ()

    def clear(self) -> None:
        """Forget all turns, and the images of the next one."""
        self.turns = self._images = ()

    def save(self, name: str) -> None:
        """Write all turns into a file, the system text first; `~` is the home.

        Raises:
            Failure: the file cannot be written, or exists and was not written by this chat.
        """
        system = (Message("system", self.system),) if self.system else ()
        try:
            file = Path(name).expanduser()
            if file.exists() and file.resolve() not in self._files:
                raise Failure(f"{file} exists: choose another name")
            write_history(file, (*system, *self.turns))
            self._files.add(file.resolve())
        except OSError as error:
            raise Failure(f"{name} cannot be written: {error.strerror}") from None
        # No home folder, a name with NUL, or a text that is not Unicode.
        except (RuntimeError, ValueError):
            raise Failure(f"{name!r} cannot be written: its name, or a text of the chat, is not valid") from None
