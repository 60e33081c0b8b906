"""Configuration -> options of a provider: the same names and rules for every provider that has them.

A provider lists its environment variables, one line each; the rest is here.
"""

from dataclasses import dataclass, field
from typing import Annotated

import msgspec
from typing_extensions import override

from tg_base.llm.base_url import base_url_from
from tg_base.llm.continued_answer import find_rest
from tg_base.llm.credentials import Key, choose_key
from tg_base.llm.guard import Clocks
from tg_schema import Sampling, TextCompletionRequest
from tg_schema.features import Feature


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The arguments of a provider's client. A provider that needs more derives from it.

    Attributes:
        base_url: None = the SDK's default.
        model: its name at the provider.
        key: None = the server needs none, or the SDK finds other credentials.
    """

    # Without repr: an endpoint in a traceback or a log must not show the key.

    base_url: str | None
    model: str
    key: str | None = field(default=None, repr=False)


class ProviderOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of every provider; a provider's own `Options` derive from it.

    Attributes:
        clocks: timeouts of the provider's stream.
        tries: attempts per request; a request is retried only before its first chunk.
        capacity: maximum number of concurrent requests; more wait in the bus. None = the provider's default.
        without: features that this server or model lacks although its provider has them; requests for one are refused,
            unless the base can supply the feature itself.
        extra_features: features that this model has although other models of its provider lack them: `embed`, for a
            model that gives vectors.
    """

    clocks: Clocks = Clocks()
    tries: int = 3
    capacity: Annotated[int, msgspec.Meta(gt=0)] | None = None
    without: frozenset[Feature] = frozenset()
    extra_features: frozenset[Feature] = frozenset()

    def upstream_name(self, model: str) -> str:
        """The provider's name of the model that is called `model` here."""
        return model


class ModelOptions(ProviderOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of a model behind an API.

    Attributes:
        upstream_model: the model's name at the provider; None = the same as here.
        temperature: the default for requests without one.
        max_tokens: the default limit of an answer's tokens, thinking included.
    """

    upstream_model: str | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=2.0)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None

    @override
    def upstream_name(self, model: str) -> str:
        return self.upstream_model or model

    def sampling(self, request: TextCompletionRequest) -> Sampling:
        """The request's sampling, with these options as defaults; the rest of an answer gets the rest of its limit.

        Raises:
            BadRequest: maybe no token is left.
        """
        sampling = request.sampling or Sampling()
        limit = self.max_tokens if sampling.max_tokens is None else sampling.max_tokens
        return msgspec.structs.replace(
            sampling,
            temperature=self.temperature if sampling.temperature is None else sampling.temperature,
            max_tokens=find_rest(limit, request) if limit is not None and request.continuation else limit,
        )


class AddressOptions(ModelOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The address of an API: `base_url`, else the first of the variables that is set, else the default.

    Attributes:
        base_url: the API's URL; None = the next three options decide.
        base_url_variables: environment variables with the URL, those of the provider's own SDK first.
        base_url_path: appended to a URL of these variables that has no path.
        default_base_url: used if no such variable is set; None = the SDK's default, or none.
    """

    base_url: str | None = None
    base_url_variables: tuple[str, ...] = ()
    base_url_path: str = ""
    default_base_url: str | None = None

    def url(self) -> str | None:
        """The URL by these options and the environment.

        Raises:
            BadRequest: the URL is not one of an API.
        """
        return base_url_from(self.base_url, self.base_url_variables, self.default_base_url, self.base_url_path)

    def endpoint(self, model: str) -> Endpoint:
        """The endpoint of `model` (its name at the provider), by these options and the environment; without the key.

        Raises:
            BadRequest: as `url`.
        """
        return Endpoint(self.url(), model)

    def key(self) -> Key:
        """The key by these options and the environment; None = the SDK finds other credentials.

        Raises:
            TgError: there is no key; the message says what to do.
        """
        return None


class RemoteOptions(AddressOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The address of the API and its key: see `choose_key`.

    Attributes:
        key_file: path of the key's file, which is read for every request.
        key_variable: the environment variable with the key; "" for a server that needs none.
        key_variables: environment variables that are searched if both are absent.
        key_needed: whether one of `key_variables` must be set.
    """

    key_file: str | None = None
    key_variable: str | None = None
    key_variables: tuple[str, ...] = ()
    key_needed: bool = True

    @override
    def key(self) -> Key:
        return choose_key(self.key_file, self.key_variable, self.key_variables, needed=self.key_needed)
