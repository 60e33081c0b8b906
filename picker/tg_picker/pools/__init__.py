"""The model servers, what they serve and how busy they are: files, discovery and scrapes."""

from tg_picker.pools import metrics
from tg_picker.pools.catalogue import Catalogue, Destination, Pool, Slo, UseCase
from tg_picker.pools.dispatcher import Dispatcher
from tg_picker.pools.host import Host, is_ip, join_address, split_address
from tg_picker.pools.load_header import LOAD_FORMAT, merge_reports, read_load_header
from tg_picker.pools.page_reader import read_page
from tg_picker.pools.pool_sources import PoolSources, read_sources
from tg_picker.pools.pool_table import PoolTable, find_goal
from tg_picker.pools.pool_view import PoolView, make_view
from tg_picker.pools.prompt import (
    MAX_PREFIX_CHARACTERS,
    Prompt,
    PromptFields,
    read_prompt,
)

__all__ = [
    "LOAD_FORMAT", "MAX_PREFIX_CHARACTERS", "Catalogue", "Destination", "Dispatcher", "Host", "Pool", "PoolSources",
    "PoolTable", "PoolView", "Prompt", "PromptFields", "Slo", "UseCase", "find_goal", "is_ip", "join_address",
    "make_view", "merge_reports", "metrics", "read_load_header", "read_page", "read_prompt", "read_sources",
    "split_address",
]  # fmt: skip
