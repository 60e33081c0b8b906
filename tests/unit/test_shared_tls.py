"""One TLS context for the models that open side by side."""

import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import httpx
import pytest

from tg_base.llm import share_tls


def test_threads_that_need_a_context_at_once_make_one() -> None:
    together, made = Barrier(4, timeout=30), list[ssl.SSLContext]()

    def create() -> ssl.SSLContext:
        made.append(httpx.create_ssl_context())
        return made[-1]

    def share() -> ssl.SSLContext:
        together.wait()
        return share_tls(create)

    with ThreadPoolExecutor(4) as threads:
        shared = {future.result(30) for future in [threads.submit(share) for _ in range(4)]}
    assert shared == set(made)
    assert len(made) == 1


def test_an_empty_folder_of_certificates_is_no_fault_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert share_tls(httpx.create_ssl_context) is share_tls(httpx.create_ssl_context)
