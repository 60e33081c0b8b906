"""One file a protocol: pure functions of values."""
