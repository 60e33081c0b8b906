"""Logs: one line an event, with the stream's id, without secrets; ours and those of libraries."""

import json
import subprocess
import sys
from io import StringIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tg_base.telemetry import hide_in_logs
from tg_base.telemetry.log import HIDDEN, MAX_HIDDEN_SECRETS, LogStream, Redaction

CANARY = "sk-canary-0123456789abcdef"
ENVIRONMENT = {
    "OPENAI_API_KEY": "plain-words-as-key",
    "HOME": "/home/of/somebody",
    "SHORT_TOKEN": "abc",
    "LANG": "en_US.UTF-8",
}


def hidden(**event: Any) -> dict[str, Any]:
    return dict(Redaction(ENVIRONMENT)(None, "info", event))


@pytest.mark.parametrize(
    "text",
    [
        CANARY,
        f"refused {CANARY}, sorry",
        "Authorization: Bearer abcdef0123",
        "authorization=abcdef0123",
        '{"api_key": "abcdef0123"}',
        "https://me:abcdef0123@host/path",
        "hf_abcdefghijklmnop0123456",
        "AKIAABCDEF0123456789",
        "eyJhbGciOiJIUzI1.eyJzdWIiOiIx.abcdef0123",
        "it was plain-words-as-key",
    ],
)
def test_what_looks_like_a_secret_is_hidden_wherever_it_stands(text: str) -> None:
    for event in (hidden(event=text), hidden(nested={"a": [text]}), hidden(error=ValueError(text)), hidden(b=(text,))):
        shown = repr(event)
        assert HIDDEN in shown
        assert "abcdef0123" not in shown
        assert "plain-words" not in shown


def test_a_known_secret_is_hidden_even_if_it_looks_like_one_of_our_ids() -> None:
    secret = "0123456789abcdef"
    find = Redaction({"OPENAI_API_KEY": secret})
    assert find(None, "info", {"request": f"00-{secret}-01", "stream": "fedcba98"}) == {
        "request": f"00-{HIDDEN}-01",
        "stream": "fedcba98",
    }


@pytest.mark.parametrize(
    "name", ["token", "api_key", "apikey", "client_secret", "password", "Authorization", "private_key"]
)
def test_a_field_that_is_a_secret_is_hidden(name: str) -> None:
    assert hidden(**{name: "abc"}) == {name: HIDDEN}


@pytest.mark.parametrize(
    "event",
    [
        {"in_token": 7, "out_token": None, "key": "alice", "first": 0.25, "auth": False},
        {"stream": "74a9885b592f490b9fff86e1327cf4ba", "service": "text-completion", "event": "request.done"},
        {"topic": "persistent://public/default/tg-request-default-text-completion", "reason": "token by token"},
        {"url": "http://127.0.0.1:8888/", "home": "/home/of/somebody", "short": "abc", "task": "tg-client"},
    ],
)
def test_what_is_no_secret_stays(event: dict[str, Any]) -> None:
    assert hidden(**event) == event


def test_a_secret_that_comes_later_is_hidden_and_the_path_of_its_file_is_not() -> None:
    redaction = Redaction({"OPENAI_API_KEY_FILE": "/run/secrets/openai"})
    event = {"reason": "later-canary in /run/secrets/openai"}
    assert redaction(None, "info", dict(event)) == event
    hide_in_logs("later-canary")
    assert redaction(None, "info", dict(event)) == {"reason": f"{HIDDEN} in /run/secrets/openai"}
    for number in range(MAX_HIDDEN_SECRETS):
        hide_in_logs(f"newer-canary-{number:04}")
    assert redaction(None, "info", dict(event)) == event


@given(
    st.recursive(
        st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_nothing_that_is_logged_breaks_the_log(value: Any) -> None:
    hidden(value=value)


PROGRAM = """
import logging, os, sys
import structlog
from tg_base.telemetry import trace
from tg_base.telemetry import configure_log
configure_log(sys.argv[1], sys.argv[2])
log = structlog.get_logger()
trace.enter(trace.Span.from_peer("stream-1", "request-1", None, None))
log.debug("too.little")
log.info("done", seconds=0.5, token="abc", odd=object)
logging.getLogger("library").warning("lib says %s", os.environ["MY_TOKEN"])
logging.getLogger("library").info("chatter")
try:
    raise ValueError("with " + os.environ["MY_TOKEN"])
except ValueError:
    log.exception("broke")
"""


def lines(form: str, level: str) -> list[str]:
    program = [sys.executable, "-c", PROGRAM, form, level]
    done = subprocess.run(
        program, capture_output=True, text=True, check=True, env={"MY_TOKEN": CANARY, "PYTHONWARNINGS": "error"}
    )
    assert done.stdout == ""
    assert CANARY not in done.stderr
    return done.stderr.splitlines()


@pytest.mark.parametrize("form", ["auto", "json"])
def test_json_lines(form: str) -> None:
    done, library, broke = map(json.loads, lines(form, "info"))
    assert list(done)[:3] == ["timestamp", "level", "event"]
    assert (done["event"], done["level"], done["stream"], done["seconds"], done["token"]) == (
        "done",
        "info",
        "stream-1",
        0.5,
        HIDDEN,
    )
    assert (done["request"], library["request"], "parent" in done) == ("request-1", "request-1", False)
    assert (library["event"], library["level"]) == (f"lib says {HIDDEN}", "warning")
    assert (broke["event"], broke["level"]) == ("broke", "error")
    assert "Traceback" in broke["exception"]
    assert f"ValueError: with {HIDDEN}" in broke["exception"]


@pytest.mark.parametrize("stderr", ["2>/dev/full", "2>&-"])
def test_a_log_that_cannot_be_written_stops_nothing(stderr: str) -> None:
    shell = ["sh", "-c", f'exec "$@" {stderr}', "sh", sys.executable, "-c", PROGRAM + "print('done')", "auto", "info"]
    done = subprocess.run(shell, stdout=subprocess.PIPE, text=True, check=False, env={"MY_TOKEN": CANARY})
    assert done.stdout == "done\n"


def test_a_program_that_closes_its_stderr_goes_on() -> None:
    stderr = StringIO()
    stream = LogStream(stderr)
    stderr.close()
    stream.write("lost\n")
    stream.flush()


def test_text_for_people() -> None:
    text = "\n".join(lines("text", "info"))
    assert "done" in text
    assert "stream=stream-1" in text
    assert "Traceback" in text
    assert "\x1b" not in text


def test_levels() -> None:
    assert [json.loads(line)["event"] for line in lines("json", "error")] == ["broke"]
    assert json.loads(lines("json", "debug")[0])["event"] == "too.little"
