"""jsdom, from its npm package: the DOM of a browser, in Node."""

from pathlib import Path
from typing import Final

from tests.npm_package import npm_package_or_skip

VERSION: Final = "26.1.0"
"""The last major version for Node 18."""


def jsdom_or_skip() -> tuple[str, Path]:
    """Node's program, and the folder of the package."""
    return npm_package_or_skip("jsdom", VERSION)
