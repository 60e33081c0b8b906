"""Writer -> sink: the bytes that one record gives, in pieces where joining them would copy megabytes."""

from collections.abc import Iterator
from typing import Final

Output = bytes | tuple[bytes, ...]
"""What a writer gives: bytes, or the pieces that they are made of."""
MAX_WRITE_BYTES: Final = 256 * 1024
"""Bytes that are handed to a connection within one turn of the event loop. Copying them into the system takes about a
tenth of a millisecond."""


def append_output(first: Output, second: Output) -> Output:
    """Join both, one after the other; pieces are not copied."""
    if isinstance(first, bytes) and isinstance(second, bytes):
        return first + second
    return (*split_output(first), *split_output(second))


def split_output(output: Output) -> tuple[bytes, ...]:
    """The pieces of an output."""
    return (output,) if isinstance(output, bytes) else output


def join_output(output: Output) -> bytes:
    """The bytes of an output; pieces are copied."""
    return output if isinstance(output, bytes) else b"".join(output)


def measure_output(output: Output) -> int:
    """The size of an output in bytes."""
    return sum(map(len, split_output(output)))


def slice_output(output: Output) -> Iterator[bytes | memoryview]:
    """Slices of at most `MAX_WRITE_BYTES`, each written in one turn of the loop. Large pieces are not copied."""
    small: list[bytes] = []
    size = 0
    for piece in split_output(output):
        if size + len(piece) > MAX_WRITE_BYTES:
            yield b"".join(small)
            small, size = [], 0
        if len(piece) > MAX_WRITE_BYTES:
            view = memoryview(piece)
            yield from (view[at : at + MAX_WRITE_BYTES] for at in range(0, len(piece), MAX_WRITE_BYTES))
        else:
            small.append(piece)
            size += len(piece)
    if small:
        yield b"".join(small)
