"""The bus over Apache Pulsar: the only package that imports its client, and only when it is opened."""

from tg_base.bus.pulsar.pulsar_bus import PulsarBus

__all__ = [
    "PulsarBus",
]
