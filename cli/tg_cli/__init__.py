"""Who asks: the commands."""
