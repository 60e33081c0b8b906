"""Option `path` -> a GGUF file on this machine: the packaged demo model, a path, or a file of the Hugging Face hub."""

from pathlib import Path

from tg_schema.errors import BadRequest, NotFound

DEMO_MODEL = Path(__file__).parents[1] / "models" / "tinydemo-q8_0.gguf"
"""The project's own demo model."""

HUB_PREFIX = "hf:"


def model_file(path: str, cache: Path | None = None, *, fetch: bool = True) -> Path | None:
    """Where the model lies. A hub's file is taken from the cache, without any network, if it is there.

    Args:
        path: "" for the demo model, `PATH.gguf`, or `hf:OWNER/NAME/FILE`.
        cache: the hub's cache directory; None = where `HF_HUB_CACHE` or `HF_HOME` says.
        fetch: False only asks the hub whether it would give a file that is not in the cache, and returns None then.

    Raises:
        BadRequest: `path` is neither.
        NotFound: there is no such file here, or no such file or repository on the hub.
        ProviderAuth: the hub wants a token.
        Unavailable: the hub cannot be reached.
    """
    if not path:
        return DEMO_MODEL
    if path.startswith(HUB_PREFIX):
        return _hub_file(path.removeprefix(HUB_PREFIX), cache, fetch=fetch)
    local = Path(path).expanduser()
    if not local.is_file():
        raise NotFound(f"there is no model file {path}: give the path of a GGUF file, or {HUB_PREFIX}OWNER/NAME/FILE")
    return local


def _hub_file(address: str, cache: Path | None, *, fetch: bool) -> Path | None:
    from tg_flow.llama.hub import hub_file  # noqa: PLC0415 - the hub's library is loaded only for a hub's file

    owner, _, rest = address.partition("/")
    name, _, file = rest.partition("/")
    if not (owner and name and file):
        raise BadRequest(
            f"a model of the Hugging Face hub is written {HUB_PREFIX}OWNER/NAME/FILE, with the file's whole name"
        )
    return hub_file(f"{owner}/{name}", file, cache, fetch=fetch)
