"""Environment, key file -> Google Cloud credentials, project and location: found once, when a provider is opened."""

import os
from pathlib import Path
from typing import NamedTuple

import google.auth
from google.auth.credentials import Credentials
from google.auth.exceptions import GoogleAuthError, TransportError
from google.oauth2.service_account import Credentials as ServiceAccount

from tg_base.llm import Failures
from tg_schema.errors import ProviderAuth
from tg_vertexai.endpoint import VertexEndpoint

FAILURES = Failures(unreachable=(TransportError,), credentials=(GoogleAuthError,))
"""How Google's library says that nobody was there to ask for a token, and that credentials give none."""

_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
_FILE = "GOOGLE_APPLICATION_CREDENTIALS"
_PROJECT = "GOOGLE_CLOUD_PROJECT"
_LOCATION = "GOOGLE_CLOUD_LOCATION"


class Account(NamedTuple):
    """Who asks, whose project pays, and where the model runs."""

    credentials: Credentials
    project: str
    location: str


def find_account(endpoint: VertexEndpoint) -> Account:
    """Find the credentials: a key file, or else what Google's library finds on this machine. Blocks; use a thread.

    Where the endpoint says nothing, the project is `GOOGLE_CLOUD_PROJECT`, or else the one of the credentials, the
    location is `GOOGLE_CLOUD_LOCATION`, and the credentials are those that `GOOGLE_APPLICATION_CREDENTIALS` names, or
    else the default ones of this machine.

    Raises:
        ProviderAuth: something is missing or makes no sense; the message names the variable, and no content of a file.
    """
    credentials, own_project = _of_key_file(endpoint.credentials_file) if endpoint.credentials_file else _default()
    project = endpoint.project or os.environ.get(_PROJECT) or own_project
    if not project:
        raise ProviderAuth(f"no Google Cloud project is named: set {_PROJECT}, or the option project")
    location = endpoint.location or os.environ.get(_LOCATION)
    if not location:
        raise ProviderAuth(f'no location is named: set {_LOCATION}, or the option location, for instance to "global"')
    return Account(credentials, project, location)


def _of_key_file(file: str) -> tuple[Credentials, str | None]:
    try:
        found = ServiceAccount.from_service_account_file(file, scopes=_SCOPES)  # type: ignore[no-untyped-call]
    except OSError:
        raise ProviderAuth("the file that the option credentials_file names cannot be read") from None
    except (GoogleAuthError, ValueError):
        raise ProviderAuth("the file that the option credentials_file names is no service account's key file") from None
    return found, found.project_id


def _default() -> tuple[Credentials, str | None]:
    file = os.environ.get(_FILE)
    if file and not Path(file).is_file():
        raise ProviderAuth(f"{_FILE} names a file that is not there")
    try:
        return google.auth.default(scopes=_SCOPES)
    except (GoogleAuthError, OSError, ValueError):
        if file:
            raise ProviderAuth(f"{_FILE} names a file that has no credentials of Google Cloud") from None
        raise ProviderAuth(
            f"there are no Google Cloud credentials: let {_FILE} name a service account's key file, "
            "or run: gcloud auth application-default login"
        ) from None
