"""Repository and file of the Hugging Face hub -> the file in this machine's cache."""

import logging
from pathlib import Path

import structlog
from httpx2 import HTTPError
from huggingface_hub import hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
)

from tg_schema.errors import BadRequest, NotFound, ProviderAuth, Unavailable

log = structlog.get_logger()
# The library's own handler would write each of its lines a second time, in another format than this log's.
logging.getLogger("huggingface_hub").handlers.clear()


def hub_file(repository: str, file: str, cache: Path | None, *, fetch: bool) -> Path | None:
    """The file's path in the cache. It is fetched if it is missing; a cached file needs no network.

    Without `fetch` the hub is only asked whether it would serve the file; then the result is None.

    Raises:
        BadRequest: `repository` is not the name of a repository.
        NotFound: the hub has no such repository or file.
        ProviderAuth: the hub requires a token.
        Unavailable: the hub cannot be reached, or the file cannot be stored.
    """
    try:  # `hf_hub_download(local_files_only=True)` would still call the hub, to tell which program runs
        cached = try_to_load_from_cache(repository, file, cache_dir=cache)
    except HFValidationError as error:
        raise BadRequest(f"{repository} is not a name that the Hugging Face hub allows") from error
    return Path(cached) if isinstance(cached, str) else _download(repository, file, cache, fetch=fetch)


def _download(repository: str, file: str, cache: Path | None, *, fetch: bool) -> Path | None:
    """Fetch a file, with a progress bar if standard error is a terminal; continues a broken download."""
    try:
        if not fetch:
            hf_hub_download(repository, file, cache_dir=cache, dry_run=True)
            return None
        log.info("model.download", repository=repository, file=file)
        return Path(hf_hub_download(repository, file, cache_dir=cache))
    except GatedRepoError as error:
        raise ProviderAuth(
            f"{repository} is only for those who accepted its terms: do so on the hub, and set HF_TOKEN"
        ) from error
    except RepositoryNotFoundError as error:
        raise NotFound(f"the hub has no repository {repository}, or HF_TOKEN does not allow it") from error
    except RemoteEntryNotFoundError as error:
        raise NotFound(f"the repository {repository} has no file {file}") from error
    except (HTTPError, OSError) as error:
        raise Unavailable(
            f"{file} of {repository} is not in the cache and cannot be downloaded now: "
            "check the network and the disk, or give the path of a GGUF file"
        ) from error
