"""The demo model is judged by questions that no chat of its corpus has."""

import json
import subprocess
import sys
from pathlib import Path

TRAINER = Path(__file__).parents[2] / "models/tinydemo"
FORMS = ("questions.tsv", "strangers.tsv")


def words_of(question: str) -> str:
    return "".join(sign for sign in question.lower() if sign.isalnum() or sign in " +-").strip()


def test_no_chat_has_a_question_of_the_judge_even_with_a_word_before_or_behind(tmp_path: Path) -> None:
    out = tmp_path / "chats.jsonl"
    subprocess.run([sys.executable, str(TRAINER / "corpus.py"), str(out), "6000", "41"], check=True, timeout=120)
    rows = [line.split("\t") for name in FORMS for line in (TRAINER / name).read_text("utf-8").splitlines()]
    judged = {words_of(question) for kind, question, _ in rows if kind != "follow" and len(question.split()) > 2}
    chats = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    asked = [words_of(turn["content"]).split() for chat in chats for turn in chat if turn["role"] == "user"]
    assert len(chats) > 5900
    found = {" ".join(part) for words in asked for part in (words, words[1:], words[:-1])} & judged
    assert not found
