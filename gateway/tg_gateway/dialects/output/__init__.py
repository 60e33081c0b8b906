"""Writer -> sink: bytes, or pieces of them that nobody copies."""

from tg_gateway.dialects.output.output import (
    MAX_WRITE_BYTES,
    Output,
    append_output,
    join_output,
    measure_output,
    slice_output,
    split_output,
)

__all__ = [
    "MAX_WRITE_BYTES",
    "Output",
    "append_output",
    "join_output",
    "measure_output",
    "slice_output",
    "split_output",
]
