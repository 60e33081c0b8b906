"""Ask -> log on the bus -> answer: responses that are made apart from the connection that asked, and stored.

A response has a log, which tells its state, and a message in a queue, for who is to make it. Each arrow is an entry:

                       maker A
                +--------------------+
                |                    v
    --head--> WAITS <--no maker--- MADE --+  maker B over A: B goes on with the
                |                    | ^  |  generation that A has begun
            end |                end | +--+
                v                    |
              OVER <-----------------+
                |
                +--head over it--> WAITS

- An entry that changes the state names the one that it replaces. If that is not the current one, the entry is void: the
  first of two processes wins, and what a process writes that was wrongly declared dead does not count.
- WAITS: until `queued` says that its service is asked, the response ends when its time is over.
- MADE: its maker writes `begun`, `records`, and `alive` every few seconds. After a long silence a reader ends it.
- In any state clients may write `cancel`, which stops the model, and `left`: the client that asked first has gone.

`requests` writes heads and messages, `queue` takes messages, `claim` names makers, `runs` and `writer` write for them,
`store` reads. A batch has such a log too, whose records are its counts; each of its lines is a response.
"""

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
