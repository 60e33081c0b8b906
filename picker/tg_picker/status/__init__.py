"""What pickers of model servers publish: metrics under published names, and the reasons for the last picks."""

from tg_picker.status.instances_status import (
    AdapterStatus,
    DecisionStatus,
    InstancesStatus,
    PickerStatus,
    PoolStatus,
    QueueStatus,
    RouteStatus,
    ServerStatus,
)
from tg_picker.status.pool_board import PoolBoard
from tg_picker.status.pool_boards import BOARDS, PoolBoards
from tg_picker.status.pool_gauges import find_pools
from tg_picker.status.request_record import ANSWERED, LEFT, LOST, RequestFacts, RequestRecord
from tg_picker.status.status_reader import explain, read_status

__all__ = [
    "ANSWERED", "BOARDS", "LEFT", "LOST", "AdapterStatus", "DecisionStatus", "InstancesStatus", "PickerStatus",
    "PoolBoard", "PoolBoards", "PoolStatus", "QueueStatus", "RequestFacts", "RequestRecord", "RouteStatus",
    "ServerStatus", "explain", "find_pools", "read_status",
]  # fmt: skip
