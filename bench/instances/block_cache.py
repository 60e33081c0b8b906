"""The KV cache of a simulated server: blocks of prompts, shared and kept after use, and tokens of one request each."""

from bench.instances.job import Job
from tg_picker.core.interface import NO_FINGERPRINT

BLOCK_TOKENS = 64
"""Of the prompts' fingerprints. Tokens that fill no block are counted one by one."""


class BlockCache:
    """Which blocks are there. Those in use stay; of the others the least recently used make room.

    Attributes:
        capacity: tokens.
        active: tokens in use.

    Args:
        capacity: tokens.
        admitted: tokens up to which a prompt is taken; answers may grow beyond them.
    """

    def __init__(self, capacity: int, admitted: int | None = None) -> None:
        self.capacity = capacity
        self._admitted = capacity if admitted is None else admitted
        self.active = 0
        self._users: dict[int, int] = {}
        self._idle: dict[int, None] = {}

    def cached(self, job: Job) -> int:
        """Blocks at the prompt's beginning that are there."""
        count = 0
        for block in job.prefix.blocks:
            if block not in self._users and block not in self._idle:
                break
            count += 1
        return count

    def room_for(self, job: Job) -> int:
        """Tokens that the prompt, and what was generated of its answer, take beside those in use."""
        blocks = job.prefix.blocks
        in_use = sum(block in self._users for block in blocks)
        return job.prompt_tokens - BLOCK_TOKENS * in_use + job.generated

    def allocate(self, job: Job) -> bool:
        """Take what the prompt, and what was generated of its answer, needs. False: there is no room now."""
        matched = self.cached(job)
        blocks, room = job.prefix.blocks, self.room_for(job)
        tail = job.prompt_tokens - BLOCK_TOKENS * len(blocks) + job.generated
        # An empty server takes any prompt that fits.
        if self.active + room > (self._admitted if self.active else self.capacity):
            return False
        for block in blocks:
            self._idle.pop(block, None)
            self._users[block] = self._users.get(block, 0) + 1
        self.active += room
        job.blocks, job.private_tokens = blocks, tail
        # The last token is always computed: it makes the first one of the answer.
        job.left_tokens = max(job.prompt_tokens + job.generated - BLOCK_TOKENS * matched, 1)
        self.evict()
        return True

    def release(self, job: Job) -> None:
        """Give back what a request uses; whole blocks stay until others need the room."""
        for block in reversed(job.blocks):
            users = self._users[block] - 1
            if users:
                self._users[block] = users
            else:
                del self._users[block]
                self._idle[block] = None
                self.active -= BLOCK_TOKENS
        self.active -= job.private_tokens
        job.blocks, job.private_tokens = (), 0

    def keep_answer(self, job: Job) -> None:
        """Keep the blocks of a whole answer for the conversation's next turn."""
        if job.answered_prefix is NO_FINGERPRINT:
            return
        for block in reversed(job.answered_prefix.blocks):
            if block not in self._users:
                self._idle.pop(block, None)
                self._idle[block] = None
        self.evict()

    def evict(self) -> None:
        """Make room for what is in use."""
        excess = self.active + BLOCK_TOKENS * len(self._idle) - self.capacity
        if excess > 0:
            gone = -(-excess // BLOCK_TOKENS)
            for block, _ in zip(list(self._idle), range(gone), strict=False):
                del self._idle[block]
