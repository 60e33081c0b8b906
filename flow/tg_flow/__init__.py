"""The services: providers, prompts, agents, usage. Each declares a `ServiceKind`, by which a process runs it."""
