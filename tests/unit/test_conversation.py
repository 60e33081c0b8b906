"""The file of a chat: a name or a text that no file takes is one sentence, never a traceback."""

from pathlib import Path

import pytest

from tg_cli.conversation import Conversation
from tg_cli.endings import Failure


@pytest.mark.parametrize("name", ["~no-such-user/x", "a\0b", "a" * 300, "/"])
def test_a_name_that_no_file_has(name: str) -> None:
    with pytest.raises(Failure, match=r"cannot be written|exists"):
        Conversation().save(name)


@pytest.mark.parametrize("name", ["~no-such-user/x", "a\0b", "a" * 300, "/"])
def test_a_name_that_no_image_has(name: str) -> None:
    with pytest.raises(Failure, match=r"cannot be read"):
        Conversation().attach(name)


def test_a_text_that_is_not_unicode(tmp_path: Path) -> None:
    conversation = Conversation()
    conversation.system = "\udcff"
    with pytest.raises(Failure, match="a text of the chat"):
        conversation.save(f"{tmp_path}/talk.json")
