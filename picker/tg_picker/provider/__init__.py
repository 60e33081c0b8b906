"""One model over many servers with OpenAI's API: the scheduler picks a server for each request."""

from tg_picker.provider.options import PoolOptions
from tg_picker.provider.provider import Pool

__all__ = ["Pool", "PoolOptions"]
