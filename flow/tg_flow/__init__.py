"""Who answers: providers and the prompt service."""
