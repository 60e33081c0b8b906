"""Configuration -> where a provider's API is and which key it gets: the same options for every provider that has them.

A provider says which environment variables count, one line each; the rest is here.
"""

from tg_base.llm.base_url import base_url_from
from tg_base.llm.credentials import Key, choose_key
from tg_base.llm.service import ProviderOptions


class UrlOptions(ProviderOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
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

    def key(self) -> Key:
        """The key by these options and the environment. Raises as `choose_key`."""
        return choose_key(self.key_file, self.key_variable, self.key_variables, needed=self.key_needed)
