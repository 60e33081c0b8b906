"""A service account's key file, whose tokens come from a loopback server, as Google's documentation describes it."""

import atexit
import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

TOKEN = "ya29.loopback"
PROJECT = "a-project"
LOCATION = "a-place"


def token(request: web.Request) -> web.Response | None:
    """The answer of the token's server; None if `request` is for something else."""
    if (request.method, request.path) != ("POST", "/token"):
        return None
    return web.json_response({"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"})


def environment(url: str) -> dict[str, str]:
    """What a process needs to ask at `url`."""
    return {
        "GOOGLE_APPLICATION_CREDENTIALS": key_file(f"{url}/token"),
        "GOOGLE_CLOUD_LOCATION": LOCATION,
        "GOOGLE_API_KEY": "not-for-vertex",
    }


def key_file(token_uri: str) -> str:
    """Write the key file of an account whose tokens are at `token_uri`."""
    file = _folder() / f"{abs(hash(token_uri))}.json"
    file.write_text(
        json.dumps(
            {
                "type": "service_account",
                "project_id": PROJECT,
                "private_key_id": "1",
                "private_key": _private_key(),
                "client_email": f"someone@{PROJECT}.iam.gserviceaccount.com",
                "client_id": "1",
                "token_uri": token_uri,
            }
        )
    )
    return str(file)


@cache
def _folder() -> Path:
    folder = TemporaryDirectory()
    atexit.register(folder.cleanup)
    return Path(folder.name)


@cache
def _private_key() -> str:
    # Every client of Google's checks it: at 2048 bits that takes 10 ms.
    key = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return pem.decode()
