"""Which model server runs a request: the scheduler of an instance gateway. No network, no clock, no randomness."""

from tg_base.instances.endpoint import Endpoint
from tg_base.instances.load_report import AdapterReport, LoadReport, Residency

__all__ = ["AdapterReport", "Endpoint", "LoadReport", "Residency"]
