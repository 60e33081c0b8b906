"""Bytes of server-sent events, against what the specification says."""

from tg_gateway.dialects import json_line, server_sent_event
from tg_gateway.dialects.framing import KEEP_ALIVE


def test_an_event_has_the_lines_that_it_is_given() -> None:
    assert server_sent_event(b"{}") == b"data: {}\n\n"
    assert server_sent_event(b"{}", b"delta") == b"event: delta\ndata: {}\n\n"
    assert server_sent_event(b"{}", number=b"7") == b"id: 7\ndata: {}\n\n"
    assert server_sent_event(b"{}", b"delta", b"7") == b"event: delta\nid: 7\ndata: {}\n\n"


def test_a_line_of_json_ends_with_its_line() -> None:
    assert json_line(b"{}") == b"{}\n"


def test_a_comment_is_an_event_without_data() -> None:
    assert KEEP_ALIVE.startswith(b":")
    assert KEEP_ALIVE.endswith(b"\n\n")
