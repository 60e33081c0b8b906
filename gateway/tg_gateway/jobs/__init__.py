"""Ask -> log on the bus -> answer: responses that are made apart from the connection that asked, and stored."""

from tg_gateway.jobs.batch_lines import BatchLines
from tg_gateway.jobs.batch_runs import BatchRuns
from tg_gateway.jobs.log import NameTaken
from tg_gateway.jobs.logs import JobLogs
from tg_gateway.jobs.pauses import AttemptPauses
from tg_gateway.jobs.queue import JobQueue
from tg_gateway.jobs.queue_bounds import QueueBounds
from tg_gateway.jobs.requests import JobRequests
from tg_gateway.jobs.runs import JobRuns
from tg_gateway.jobs.store import JobStore

__all__ = [
    "AttemptPauses", "BatchLines", "BatchRuns", "JobLogs", "JobQueue", "JobRequests", "JobRuns", "JobStore",
    "NameTaken", "QueueBounds",
]  # fmt: skip
