"""Who runs it all: `tg-serve`, and the pipeline embedded in a command."""
