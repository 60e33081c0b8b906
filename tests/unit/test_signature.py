"""Signatures in records: opaque texts that say whose they are."""

import pytest

from tg_base.llm import read_signature, write_signature


@pytest.mark.parametrize("value", ["c2lnbmVk", "", "a:b", '{"a": 1}', "…"])
def test_only_its_own_origin_reads_a_signature(value: str) -> None:
    signature = write_signature("anthropic", value)
    assert read_signature(signature, "anthropic") == value
    assert read_signature(signature, "gemini") is None


@pytest.mark.parametrize("signature", [None, "", "anthropic", "anthropic-redacted:x", ":x"])
def test_anything_else_is_nobodys(signature: str | None) -> None:
    assert read_signature(signature, "anthropic") is None
