"""Option `path` -> a GGUF file on this machine: the packaged demo model, a path, or a file of the Hugging Face hub."""

from pathlib import Path

from tg_llama.models import DEMO_MODEL
from tg_schema.errors import BadRequest, NotFound

HUB_PREFIX = "hf:"


def model_file(path: str, cache: Path | None = None, *, fetch: bool = True) -> Path | None:
    """The model's path. A file of the hub comes from the cache if it is there, without network access.

    Args:
        path: "" for the demo model, `PATH.gguf`, or `hf:OWNER/NAME/FILE`.
        cache: the hub's cache directory; None = the one that `HF_HUB_CACHE` or `HF_HOME` names.
        fetch: False only asks the hub whether it would serve a file that is not cached, and returns None then.

    Raises:
        BadRequest: `path` has none of these forms.
        NotFound: there is no such file here, or no such file or repository on the hub.
        ProviderAuth: the hub requires a token.
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
    from tg_llama.core.hub import hub_file  # noqa: PLC0415 - the hub's library is loaded only for a hub's file

    owner, _, rest = address.partition("/")
    name, _, file = rest.partition("/")
    if not (owner and name and file):
        raise BadRequest(
            f"a model of the Hugging Face hub is written {HUB_PREFIX}OWNER/NAME/FILE, with the file's whole name"
        )
    return hub_file(f"{owner}/{name}", file, cache, fetch=fetch)
