"""Options of llama-cpp -> the opened model: its engines and its prompt tokenizer."""

from contextlib import closing

from tg_llama.chat import PromptTokenizer
from tg_llama.core import model_file
from tg_llama.engine import EnginePool
from tg_llama.lora import find_adapter_files
from tg_llama.native import Model, ModelLoad
from tg_llama.options import LlamaCppOptions
from tg_schema import TgError
from tg_schema.errors import Internal


def open_engines(options: LlamaCppOptions, load: ModelLoad) -> tuple[EnginePool[Model], PromptTokenizer]:
    """The engines for `options`; blocks while the model is downloaded and loaded. Raises as `rehearse_engines`."""
    model = _model(options, load, weights=True)
    if model is None:
        raise Internal("a model's file was not fetched")
    try:
        tokenizer = PromptTokenizer(model)
        # Report free slots to pickers before there is an adapter.
        takes = bool(options.adapters or options.adapter_folder)
        adapters = find_adapter_files(options.adapters) if takes else None
        return EnginePool(model, options.sizes(model.context_length, model.size), adapters), tokenizer
    except TgError:
        model.close()
        raise


def rehearse_engines(options: LlamaCppOptions) -> None:
    """Check, without weights, what `open_engines` needs. Raises: TgError; `option` has the option that is wrong."""
    find_adapter_files(options.adapters, fetch=False)
    model = _model(options, ModelLoad(), weights=False)
    if model is not None:
        with closing(model):
            PromptTokenizer(model)


def _model(options: LlamaCppOptions, load: ModelLoad, *, weights: bool) -> Model | None:
    """The model of `options`. Without weights None, if the file has not been downloaded yet but could be."""
    try:
        path = model_file(options.path, fetch=weights)
        return None if path is None else Model(path, weights=weights, load=load)
    except TgError as error:
        raise error.at("path") from None
