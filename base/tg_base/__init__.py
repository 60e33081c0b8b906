"""How it travels: the bus, the stream protocol, LlmService, configuration, metrics and logs."""
