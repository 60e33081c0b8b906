"""Browser and programs -> `/instances`: pools, servers, adapters, queues, and the reasons of the last picks."""

from tg_picker.page.instances_page import INSTANCES_PATH, InstancesPage

__all__ = ["INSTANCES_PATH", "InstancesPage"]
