"""Envoy's external processing: an endpoint picker for pools of model servers, protocol v1.0.0.

Its modules need the extra `envoy` of tokengrid-gateway, so this `__init__` exports nothing.
"""
