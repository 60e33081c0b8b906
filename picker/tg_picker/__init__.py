"""Tokengrid's instance gateway: picks a model server of a pool for each request."""
