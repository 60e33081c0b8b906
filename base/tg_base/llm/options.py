"""Configuration -> what may be said of a provider: the same options for every provider that has them.

A provider says which environment variables count, one line each; the rest is here.
"""

from typing import Annotated

import msgspec
from typing_extensions import override

from tg_base.llm.base_url import base_url_from
from tg_base.llm.credentials import Key, choose_key
from tg_base.llm.endpoint import Endpoint
from tg_base.llm.guard import Clocks
from tg_schema import Sampling, TextCompletionRequest
from tg_schema.features import Feature


class ProviderOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the configuration may say of any provider; a provider's own `Options` derive from it.

    Attributes:
        clocks: how long the provider may take.
        tries: how often a request is tried as long as not a single chunk of it has been sent.
        capacity: requests that the provider is asked side by side; more wait in the bus. None = the provider's own.
        without: what this server or model cannot do although its provider can; requests for it are refused.
    """

    clocks: Clocks = Clocks()
    tries: int = 3
    capacity: Annotated[int, msgspec.Meta(gt=0)] | None = None
    without: frozenset[Feature] = frozenset()

    def upstream_name(self, model: str) -> str:
        """The name at the provider of the model that we call `model`."""
        return model


class ModelOptions(ProviderOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What may be said of a model that somebody else serves.

    Attributes:
        upstream_model: the model's name at the provider; ours where absent.
        temperature: for requests that do not say.
        max_tokens: the bound on an answer's tokens, thinking included, for requests that do not say.
    """

    upstream_model: str | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=2.0)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None

    @override
    def upstream_name(self, model: str) -> str:
        return self.upstream_model or model

    def sampling(self, request: TextCompletionRequest) -> Sampling:
        """The request's sampling, with these options for what it leaves open."""
        said = request.sampling or Sampling()
        return msgspec.structs.replace(
            said,
            temperature=self.temperature if said.temperature is None else said.temperature,
            max_tokens=self.max_tokens if said.max_tokens is None else said.max_tokens,
        )


class UrlOptions(ModelOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where the API is: `base_url`, else the first of the variables that is set, else the default.

    Attributes:
        base_url: where the API is; where absent, see the next three.
        base_url_variables: environment variables that may have the URL, those of the provider's own SDK first.
        base_url_path: what a URL of these variables gets that has no path.
        default_base_url: where no such variable is set; None = as the SDK has it, or there is no default.
    """

    base_url: str | None = None
    base_url_variables: tuple[str, ...] = ()
    base_url_path: str = ""
    default_base_url: str | None = None

    def url(self) -> str | None:
        """The URL by these options and the environment.

        Raises:
            BadRequest: it is no URL of an API.
        """
        return base_url_from(self.base_url, self.base_url_variables, self.default_base_url, self.base_url_path)

    def endpoint(self, model: str) -> Endpoint:
        """Where to ask for `model` (its name at the provider), by these options and the environment; without the key.

        Raises:
            BadRequest: as `url`.
        """
        return Endpoint(self.url(), model)

    def key(self) -> Key:
        """The key by these options and the environment; None = the SDK has other credentials.

        Raises:
            TgError: there is no key; the message says what to do.
        """
        return None


class RemoteOptions(UrlOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where the API is and which key it gets: see `choose_key`.

    Attributes:
        key_file: a file that holds the key, read again for every request.
        key_variable: the environment variable that holds the key; "" for a server that needs none.
        key_variables: environment variables that may have the key, where neither of these two is said.
        key_needed: whether one of them must be set.
    """

    key_file: str | None = None
    key_variable: str | None = None
    key_variables: tuple[str, ...] = ()
    key_needed: bool = True

    @override
    def key(self) -> Key:
        return choose_key(self.key_file, self.key_variable, self.key_variables, needed=self.key_needed)
