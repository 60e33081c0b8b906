"""Shell -> gateway: the commands. This face is empty: it would run before Ctrl-C is handled."""
