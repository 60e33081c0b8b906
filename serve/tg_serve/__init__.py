"""Runs the pipeline: `tg-serve`, and the pipeline embedded in a command."""
