"""One model over many servers with OpenAI's API: the scheduler picks a server for each request."""

from tg_flow.providers.pool.options import PoolOptions
from tg_flow.providers.pool.provider import Pool

__all__ = ["Pool", "PoolOptions"]
