"""Who answers: providers, the prompt service, agents. `tg_flow.services` makes them run."""
