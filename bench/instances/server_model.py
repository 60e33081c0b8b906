"""Constants of a simulated model server."""

from dataclasses import dataclass

TOLD_FIELDS = frozenset(
    {"queued", "running", "kv_usage", "blocks", "block_tokens", "adapters", "queued_by_adapter", "started_at"}
)
"""Fields of a report that a server may leave out."""


@dataclass(frozen=True)
class ServerModel:
    """How fast a server is and what it holds.

    Attributes:
        cache_tokens: that its KV cache holds.
        fixed_prefill_seconds: of a batch of prompts.
        prefill_token_seconds: for each token of a prompt that is not cached.
        min_prefill_seconds: of a batch of prompts.
        fixed_decode_seconds: of a step in which each sequence makes a token.
        sequence_seconds: of a step, for each sequence.
        cached_token_seconds: of a step, for each token of the sequences.
        chunked: whether prompts and answers share a step; else prompts go first and answers wait.
        attention_tokens: context at which a token of a prompt takes twice as long.
        batch_tokens: tokens of prompts in a step.
        sequences: in a batch.
        slots: adapters in a batch, and on the accelerator; 0 = adapters are off.
        load_seconds: of an adapter. Nothing else runs meanwhile, as in vLLM without pipelined loads.
        speed: by which all times are divided.
        admitted_share: of the cache, up to which a request is admitted. Answers grow beyond it.
        told_share: of the cache, by which the use that it tells is divided.
        tells: the fields of a report that it fills in.
        cold_seconds: that its first step takes longer.
    """

    cache_tokens: int
    fixed_prefill_seconds: float
    prefill_token_seconds: float
    min_prefill_seconds: float
    fixed_decode_seconds: float
    sequence_seconds: float
    cached_token_seconds: float
    chunked: bool
    attention_tokens: float = float("inf")
    batch_tokens: int = 8_192
    sequences: int = 256
    slots: int = 0
    load_seconds: float = 0.4
    speed: float = 1.0
    admitted_share: float = 1.0
    told_share: float = 1.0
    tells: frozenset[str] = TOLD_FIELDS
    cold_seconds: float = 0.0

    def prefill_seconds(self, tokens: float, context: float) -> float:
        """Seconds that a batch of prompts takes, by its tokens and the mean number of tokens before each."""
        seconds = self.fixed_prefill_seconds + self.prefill_token_seconds * tokens * (
            1 + context / self.attention_tokens
        )
        return max(seconds, self.min_prefill_seconds) / self.speed

    def decode_seconds(self, sequences: int, tokens: int) -> float:
        """Seconds that a decoding step takes, by its sequences and the tokens in all of them."""
        return (
            self.fixed_decode_seconds + self.sequence_seconds * sequences + self.cached_token_seconds * tokens
        ) / self.speed


LLAMA_7B = ServerModel(
    cache_tokens=2_810 * 16,
    fixed_prefill_seconds=0.01969,
    prefill_token_seconds=6.769e-5,
    min_prefill_seconds=0.04,
    fixed_decode_seconds=0.014,
    sequence_seconds=1.026e-4,
    cached_token_seconds=5.353e-7,
    chunked=False,
)
"""The reference's own simulation: published constants (reference document 7.1)."""
QWEN_32B = ServerModel(
    cache_tokens=300_000,
    fixed_prefill_seconds=0.0,
    prefill_token_seconds=1 / 20_480,
    min_prefill_seconds=0.0,
    # Not published. 35 sequences of 5,000 tokens make 1,000 tokens/s a server, somewhat more than was published.
    fixed_decode_seconds=0.015,
    sequence_seconds=1e-4,
    cached_token_seconds=1e-7,
    # 20,480 tokens/s at 8,192 tokens and 15,928 sustained over prompts of 55,000: 1.29 times at 27,000 behind.
    attention_tokens=95_000,
    chunked=True,
)
"""Qwen3-32B on two H100: prefill as published, decode of about the published throughput."""
