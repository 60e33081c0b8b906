"""LoRA adapters -> the gateway's OpenAPI document."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from tg_gateway.description import ASKING, Description
from tg_gateway.dialects.adapters.bodies import LoadBody, UnloadBody
from tg_gateway.dialects.chat import Failure

_describe = partial(Description, group="LoRA adapters", failure=Failure, further={"text/plain": None}, raises=ASKING)

ADAPTERS_DESCRIPTIONS: Final[Mapping[str, Description]] = {
    "load-adapter": _describe(
        summary="Load a LoRA adapter",
        body=LoadBody,
        required=("lora_name", "lora_path"),
        examples={"file": {"lora_name": "pirate", "lora_path": "lora-pirate.gguf"}},
    ),
    "unload-adapter": _describe(
        summary="Unload a LoRA adapter",
        body=UnloadBody,
        required=("lora_name",),
        examples={"name": {"lora_name": "pirate"}},
    ),
}
