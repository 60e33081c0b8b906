"""What tests/broker_and_files.py uses of pytest-xdist, which has no types."""
