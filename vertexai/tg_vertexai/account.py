"""Options, environment -> Google Cloud credentials, project and location, resolved once, when a provider is opened."""

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
"""Exceptions of Google's library: the token server cannot be reached, and the credentials yield no token."""

_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
_FILE = "GOOGLE_APPLICATION_CREDENTIALS"
_PROJECT = "GOOGLE_CLOUD_PROJECT"
_LOCATION = "GOOGLE_CLOUD_LOCATION"


class Account(NamedTuple):
    """The credentials, the project that is billed, and the location of the model."""

    credentials: Credentials
    project: str
    location: str


def find_account(endpoint: VertexEndpoint) -> Account:
    """Find credentials, project and location. Blocks; use a thread.

    The endpoint's values take precedence. Otherwise the project is `GOOGLE_CLOUD_PROJECT`, or else that of the
    credentials; the location is `GOOGLE_CLOUD_LOCATION`; the credentials are in the file that
    `GOOGLE_APPLICATION_CREDENTIALS` names, or else the default ones of this machine.

    Raises:
        ProviderAuth: a value is missing or invalid. The message names the variable, never the content of a file.
    """
    try:
        credentials, own_project = _of_key_file(endpoint.credentials_file) if endpoint.credentials_file else _default()
    except ProviderAuth as error:
        raise error.at("credentials_file") from None
    project = endpoint.project or os.environ.get(_PROJECT) or own_project
    if not project:
        raise ProviderAuth(f"no Google Cloud project is named: set {_PROJECT}, or the option project").at("project")
    location = endpoint.location or os.environ.get(_LOCATION)
    if not location:
        sentence = f'no location is named: set {_LOCATION}, or the option location, for instance to "global"'
        raise ProviderAuth(sentence).at("location")
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
    # Google's library would only say that the default credentials were not found.
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
