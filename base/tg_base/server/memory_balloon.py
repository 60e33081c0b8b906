"""Python's allocator -> system: the pages of its free pools, which it keeps while a few objects hold their arenas.

CPython serves objects of up to 512 bytes from pools of 16 KiB, and maps 64 of them at once, an arena, which it unmaps
when all of it is free. After a burst of streams hardly any arena is free, since a few long-lived objects were made in
each of them. So we allocate the free pools, and tell the system that it may have their pages, all but the first of each
pool. (The balloon driver of a virtual machine works in this way.)
"""

import asyncio
import ctypes
import mmap
import os
import sys
import sysconfig
from array import array
from collections import deque
from collections.abc import Callable, Iterable
from itertools import repeat
from pathlib import Path
from typing import Final

POOL_BYTES: Final = 16 * 1024
"""Bytes of a pool (CPython's `obmalloc`, since 3.10)."""
HEADER_BYTES: Final = 48
"""Bytes at the beginning of a pool, which are the allocator's own."""
BLOCK_BYTES: Final = 512
"""Bytes of the largest block that comes from a pool."""
POOL_BLOCKS: Final = (POOL_BYTES - HEADER_BYTES) // BLOCK_BYTES
"""Blocks of that size in a pool; the allocator does not use the bytes after them."""
ARENA_POOLS: Final = 63
"""Pools that every arena has; it has one more if it begins at a multiple of `POOL_BYTES`."""
SPARED_POOLS: Final = 64
"""Free pools that are left to the allocator (1 MiB), for what a process does at rest."""
MAX_NEW_BYTES: Final = 8 * 1024 * 1024
"""Growth of the process at which taking pools stops: other code is then taking pools too, as in a burst."""
TURN_POOLS: Final = 16
"""Pools that are taken or given back in one turn of the event loop, about 1 ms."""
_SIZES: Final = Path("/proc/self/statm")


class MemoryBalloon:
    """Holds free pools of the allocator. Empty at first; its calls must not overlap.

    It stays empty where Python has another allocator (`PYTHONMALLOC`, no GIL), where pages are as large as pools or
    addresses have 32 bits, and on other systems than Linux.
    """

    def __init__(self) -> None:
        self._pools = array("Q")
        self._works = _has_pools()
        libc, python = ctypes.CDLL(None), ctypes.pythonapi
        prototypes = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t), ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
        self._allocate: Callable[[int], int] = prototypes[0](("PyObject_Malloc", python))
        self._free: Callable[[int], None] = prototypes[1](("PyObject_Free", python))
        advise = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        self._madvise: Callable[[int, int, int], int] = advise(("madvise", libc))

    @property
    def pools(self) -> int:
        """The number of pools that it holds. The system has all pages of each but the first."""
        return len(self._pools)

    @property
    def addresses(self) -> list[int]:
        """Addresses of these pools."""
        return self._pools.tolist()

    async def inflate(self) -> None:
        """Give the held pools back, then take all free pools but `SPARED_POOLS`, in short turns."""
        await self.deflate()
        if not self._works:
            return
        strays = array("Q")
        try:
            await self._take_pools(strays)
        finally:
            # The allocator serves its fullest arenas first, so the first pools are the ones to leave to it.
            spared = self._pools[:SPARED_POOLS]
            del self._pools[:SPARED_POOLS]
            self._give_back(spared)
            _run(map(self._free, strays))
        for number, pool in enumerate(self._pools):
            # These pages have only our blocks, and bytes that the allocator does not use.
            self._madvise(pool + mmap.PAGESIZE, POOL_BYTES - mmap.PAGESIZE, mmap.MADV_DONTNEED)
            if number % (8 * TURN_POOLS) == 0:
                await asyncio.sleep(0)

    async def deflate(self) -> None:
        """Give all pools back to the allocator, in short turns."""
        while self._pools:
            taken = self._pools[-TURN_POOLS:]
            del self._pools[-TURN_POOLS:]
            self._give_back(taken)
            await asyncio.sleep(0)

    async def _take_pools(self, strays: "array[int]") -> None:
        """Take pools until a whole new arena is taken: then no free pool is left in the others."""
        row, most = 0, _mapped_bytes() + MAX_NEW_BYTES
        while row < ARENA_POOLS:
            pool = self._take_pool(strays)
            if pool is None:
                self._works = False
                return
            row = row + 1 if self._pools and pool == self._pools[-1] + POOL_BYTES else 1
            self._pools.append(pool)
            if len(self._pools) % TURN_POOLS == 0:
                # Others may take a pool of each new arena: then none looks new, and this would never end.
                if _mapped_bytes() > most:
                    break
                await asyncio.sleep(0)
        new = self._pools[-row:]
        del self._pools[-row:]
        # All of its pools are free again, so the allocator unmaps it.
        self._give_back(new)

    def _take_pool(self, strays: "array[int]") -> int | None:
        """Allocate all blocks of a pool; None if its layout is another one. `strays` gets blocks of other pools."""
        blocks: list[int] = []
        while len(blocks) < POOL_BLOCKS:
            blocks += map(self._allocate, repeat(BLOCK_BYTES, POOL_BLOCKS - len(blocks)))
            pool = blocks[-1] & -POOL_BYTES
            strays.extend(block for block in blocks if block & -POOL_BYTES != pool)
            blocks = [block for block in blocks if block & -POOL_BYTES == pool]
        if set(blocks) == set(_blocks_of(pool)):
            return pool
        strays.extend(blocks)
        return None

    def _give_back(self, pools: "array[int]") -> None:
        for pool in pools:
            _run(map(self._free, _blocks_of(pool)))


def _mapped_bytes() -> int:
    """Bytes of the process's address space."""
    return int(_SIZES.read_bytes().split()[0]) * mmap.PAGESIZE


def _blocks_of(pool: int) -> range:
    first = pool + HEADER_BYTES
    return range(first, first + POOL_BLOCKS * BLOCK_BYTES, BLOCK_BYTES)


def _run(calls: Iterable[object]) -> None:
    """Make all calls from C, without an interpreter step for each."""
    deque(calls, maxlen=0)


def _has_pools() -> bool:
    """Whether objects come from the pools that this file describes, and a part of a pool can be given back."""
    named = os.environ.get("PYTHONMALLOC", "pymalloc") == "pymalloc" and not sys.flags.dev_mode
    built = sysconfig.get_config_var("WITH_PYMALLOC") and not sysconfig.get_config_var("Py_GIL_DISABLED")
    # With 32 bits a pool has 4 KiB, and four of them never as many blocks as one of ours.
    large = sys.maxsize >= 2**32 and POOL_BYTES // mmap.PAGESIZE > 1
    return bool(named and built) and large and sys.platform == "linux" and os.access(_SIZES, os.R_OK)
