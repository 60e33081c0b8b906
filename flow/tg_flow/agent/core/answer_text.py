"""Records of a dialog -> the text of its answer, for a non-streaming answer and for a supervisor's observation."""

from tg_schema import AgentResponse
from tg_schema.answer_collector import MAX_ANSWER_BYTES
from tg_schema.errors import TooLarge

PIECE_BYTES = 32
"""Memory overhead of one buffered piece of text."""


class AnswerText:
    """Collects answers that may be final. An answer that ends before the dialog does was withdrawn, and is dropped."""

    def __init__(self) -> None:
        self._answers: dict[str | None, list[str]] = {}
        self._size = 0

    def take(self, record: AgentResponse) -> None:
        """Add a record; records of sub-agents are skipped.

        Raises:
            TooLarge: the answer has more than `MAX_ANSWER_BYTES`.
        """
        if record.chunk_type != "answer" or record.path:
            return
        if record.end_of_message and not record.last:
            self._size -= sum(len(piece) + PIECE_BYTES for piece in self._answers.pop(record.message_id, ()))
            return
        text = record.content or ""
        self._answers.setdefault(record.message_id, []).append(text)
        self._size += len(text) + PIECE_BYTES
        if self._size > MAX_ANSWER_BYTES:
            raise TooLarge(f"the agent's answer is larger than {MAX_ANSWER_BYTES} bytes; ask a smaller question")

    def final_text(self, last: AgentResponse) -> str:
        """The text of the message that ends the dialog."""
        return "".join(self._answers.get(last.message_id, ()))
