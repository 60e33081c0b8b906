"""LoRA adapters: their files, which of them are in memory, and which one the next step uses."""

from tg_llama.lora.adapter_files import AdapterFile, AdapterName, find_adapter_files, find_loaded_file
from tg_llama.lora.adapter_slots import AdapterSlots, Lease
from tg_llama.lora.adapter_turns import AdapterTurns

__all__ = [
    "AdapterFile",
    "AdapterName",
    "AdapterSlots",
    "AdapterTurns",
    "Lease",
    "find_adapter_files",
    "find_loaded_file",
]
