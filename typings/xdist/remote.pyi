"""The part of pytest-xdist that a worker runs."""

class Producer:
    """Writes what xdist does, where that is asked for."""
