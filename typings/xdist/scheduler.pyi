"""The orders in which pytest-xdist gives tests to its workers."""

import pytest
from xdist.remote import Producer

class LoadFileScheduling:
    """Each file's tests go to one worker."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None: ...
    def _split_scope(self, nodeid: str) -> str: ...
