"""Names of ignored fields -> header and log: neither grows with what a hostile client makes up."""

import pytest
from structlog.testing import capture_logs

from tg_gateway.dialects import ignored_fields, show_ignored
from tg_gateway.dialects.ignored_fields import IGNORED_HEADER, MAX_LISTED_FIELDS


def test_a_name_is_logged_once() -> None:
    with capture_logs() as logs:
        for _ in range(2):
            assert show_ignored("once", ["b", "a", "a", "no name"]) == {IGNORED_HEADER: "a, b"}
    assert [entry["field"] for entry in logs] == ["a", "b"]


def test_made_up_names_do_not_fill_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ignored_fields, "_logged", set())
    monkeypatch.setattr(ignored_fields, "MAX_LOGGED_FIELDS", 40)
    with capture_logs() as logs:
        for request in range(5):
            show_ignored("hostile", [f"u{request}_{number}" for number in range(20)])
        show_ignored("hostile", ["u0_0"])
    assert len(logs) == 40


def test_a_request_of_many_names_is_not_read_to_its_end() -> None:
    names = iter(f"u{number}" for number in range(10**6))
    assert show_ignored("hostile", names)[IGNORED_HEADER].count(",") == MAX_LISTED_FIELDS - 1
    assert next(names) == f"u{ignored_fields.MAX_READ_FIELDS}"
