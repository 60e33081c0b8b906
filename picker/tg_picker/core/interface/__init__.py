"""The scheduler's input: a request with its prompt's fingerprint, the servers, and the load that these report."""

from tg_picker.core.interface.endpoint import AdapterReport, Endpoint, LoadReport, Residency
from tg_picker.core.interface.fingerprint import (
    BLOCK_BYTES,
    BLOCK_TOKENS,
    CHARACTERS_PER_TOKEN,
    HASH_BITS,
    NO_FINGERPRINT,
    Fingerprint,
    chain_root,
    chain_tokens,
    fingerprint_prompt,
    fingerprint_text,
    fingerprint_tokens,
    pack_tokens,
    salt_tokens,
)
from tg_picker.core.interface.instance_request import InstanceRequest, InstanceUsage, Objective

__all__ = [
    "BLOCK_BYTES", "BLOCK_TOKENS", "CHARACTERS_PER_TOKEN", "HASH_BITS", "NO_FINGERPRINT", "AdapterReport", "Endpoint",
    "Fingerprint", "InstanceRequest", "InstanceUsage", "LoadReport", "Objective", "Residency", "chain_root",
    "chain_tokens", "fingerprint_prompt", "fingerprint_text", "fingerprint_tokens", "pack_tokens", "salt_tokens",
]  # fmt: skip
