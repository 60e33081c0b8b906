"""Templates and the service that renders them."""
