"""The bus: one protocol, chosen by URL."""
