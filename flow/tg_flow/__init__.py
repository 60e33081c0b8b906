"""Who answers: providers, the prompt service, agents. Each declares a `ServiceKind`, by which a process runs it."""
