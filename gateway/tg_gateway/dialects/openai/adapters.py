"""LoRA adapters over HTTP: how they are loaded and unloaded, as vLLM's clients ask for it."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar, Final

import msgspec
from typing_extensions import override

from tg_gateway.dialects import (
    ASKING,
    Ask,
    Call,
    CompletionWriter,
    Description,
    FoundModel,
    InvalidParameter,
    Mount,
)
from tg_gateway.dialects.chat import Failure, OpenAiShaped, decode_body, find_asked_model, refuse_unsupported
from tg_schema import TextCompletionRequest, TextCompletionResponse
from tg_schema.errors import BadRequest


class UnloadBody(msgspec.Struct, frozen=True, kw_only=True):
    """The adapter to forget.

    Attributes:
        lora_name: the adapter's name.
        base_model_name: its base model; by default the default flow's.
    """

    lora_name: str | None = None
    base_model_name: str | None = None


class LoadBody(UnloadBody, frozen=True, kw_only=True):
    """The adapter to load.

    Attributes:
        lora_path: its file, where the model runs.
        load_inplace: whether it may replace an adapter of this name; only false is supported.
    """

    lora_path: str | None = None
    load_inplace: bool | None = None


_describe = partial(Description, group="LoRA adapters", failure=Failure, further={"text/plain": None}, raises=ASKING)


def _say_success(records: Sequence[TextCompletionResponse], name: str, done: str) -> bytes:
    """The sentence of vLLM, once the processor has loaded or unloaded the adapter."""
    return f"Success: LoRA adapter '{name}' {done} successfully.".encode("utf-8", "replace")


class AdaptersApi(OpenAiShaped):
    """The model whose adapters are changed.

    It must have exactly one live processor, since the call reaches only one.
    """

    descriptions: ClassVar[Mapping[str, Description]] = {
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

    @override
    def parse(self, call: Call) -> Ask:
        return self._parse_load(call) if call.operation == "load-adapter" else self._parse_unload(call)

    def _parse_load(self, call: Call) -> Ask:
        body = decode_body(LoadBody, call.body)
        if not body.lora_name or not body.lora_path:
            missing = "lora_path" if body.lora_name else "lora_name"
            raise InvalidParameter(
                "Both 'lora_name' and 'lora_path' must be provided.", missing, "missing_required_parameter"
            )
        refuse_unsupported(body, {"load_inplace": "unload the adapter first"})
        return _ask(call, body, body.lora_name, body.lora_path)

    def _parse_unload(self, call: Call) -> Ask:
        body = decode_body(UnloadBody, call.body)
        if not body.lora_name:
            raise InvalidParameter(
                "'lora_name' needs to be provided to unload a LoRA adapter.", "lora_name", "missing_required_parameter"
            )
        return _ask(call, body, body.lora_name)


def _ask(call: Call, body: UnloadBody, name: str, path: str | None = None) -> Ask:
    found = find_asked_model(call, body.base_model_name, required=False)
    request = TextCompletionRequest(
        operation=call.operation, model=found.model, adapter=name, adapter_path=path, streaming=False
    )
    found.check(request)
    _check_editable(found)
    writer = CompletionWriter(partial(_say_success, name=name, done="removed" if path is None else "added"))
    writer.content_type = "text/plain; charset=utf-8"
    return Ask(found.route, request, writer, streaming=False)


def _check_editable(found: FoundModel) -> None:
    """Raises: BadRequest, if the model's adapters are fixed by its configuration."""
    BadRequest.refuse(
        {
            # Without a live processor, the queue's own error says so.
            "this model loads no adapters at run time: set `adapter_folder` in its options": (
                found.processors and "load_adapter" not in found.features
            ),
            # Only one processor would load the adapter, but requests for it would reach all of them.
            f"{found.processors} processors serve this model, and only one would get this call: name the adapter in "
            "the configuration, which all of them have": found.processors > 1,
        }
    )


ADAPTERS: Final = AdaptersApi()

MOUNTS: Final[tuple[Mount, ...]] = (
    Mount("POST", "/v1/load_lora_adapter", ADAPTERS, "load-adapter"),
    Mount("POST", "/v1/unload_lora_adapter", ADAPTERS, "unload-adapter"),
)
"""Where LoRA adapters are loaded and unloaded."""
