"""What a broker needs that asks for tokens and speaks TLS: settings, keys, and tokens that it believes."""

import base64
import hashlib
import hmac
import json
import secrets
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.pulsar_server import PulsarServer
from tg_base.bus import BusOptions

PASSWORD = "not-secret"
PROVIDER = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"
CLIENT_PLUGIN = "org.apache.pulsar.client.impl.auth.AuthenticationToken"


class BrokerSecurity:
    """A token key and a self-signed certificate for 127.0.0.1, in `folder`; made with the JDK's own tool."""

    def __init__(self, folder: Path) -> None:
        self._key = secrets.token_bytes(32)
        self._store = folder / "broker.p12"
        self.certificate = folder / "broker.pem"
        store = ["-keystore", str(self._store), "-storepass", PASSWORD, "-alias", "broker"]
        name = ["-dname", "CN=broker", "-ext", "SAN=ip:127.0.0.1"]
        pair = ["-genkeypair", "-storetype", "PKCS12", "-keyalg", "RSA", "-keysize", "2048", "-validity", "2"]
        subprocess.run(["keytool", *pair, *name, *store], check=True, capture_output=True)
        exported = ["keytool", "-exportcert", "-rfc", *store, "-file", str(self.certificate)]
        subprocess.run(exported, check=True, capture_output=True)

    def token(self, subject: str) -> str:
        """A token (RFC 7519, HS256) that the broker believes."""
        claims = [{"alg": "HS256"}, {"sub": subject}]
        signed = b".".join(_url_safe(json.dumps(claim).encode()) for claim in claims)
        return (signed + b"." + _url_safe(hmac.digest(self._key, signed, hashlib.sha256))).decode()

    @property
    def settings(self) -> dict[str, str]:
        """For `PulsarServer`; the subject `admin` may do everything, others nothing."""
        return {
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "authenticationProviders": PROVIDER,
            "superUserRoles": "admin",
            "tokenSecretKey": "data:;base64," + base64.b64encode(self._key).decode(),
            "brokerClientAuthenticationPlugin": CLIENT_PLUGIN,
            "brokerClientAuthenticationParameters": json.dumps({"token": self.token("admin")}),
            "tlsEnabledWithKeyStore": "true",
            "tlsKeyStoreType": "PKCS12",
            "tlsKeyStore": str(self._store),
            "tlsKeyStorePassword": PASSWORD,
        }


class SecuredBroker(NamedTuple):
    """A broker with that security, and where the files of its clients are."""

    server: PulsarServer
    security: BrokerSecurity
    folder: Path

    def options(self, subject: str, certificate: Path | None = None) -> BusOptions:
        """What a client of that name writes into its configuration."""
        token = self.folder / f"{subject}.token"
        token.write_text(self.security.token(subject), "utf-8")
        return BusOptions(token_file=token, trust_certs=certificate or self.security.certificate)


def _url_safe(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
