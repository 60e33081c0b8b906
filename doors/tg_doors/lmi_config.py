"""The table `[gateway.lmi]`, apart from its door: processes without a gateway read it too."""

import msgspec


class LmiModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The LMI door for one model; unset fields are taken from `[gateway.lmi]`."""

    tgi_compat: bool | None = None
    rolling_batch: bool | None = None
    output_formatter: str | None = None
    input_formatter: str | None = None


class LmiConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The LMI door: the settings that an LMI container reads from its `serving.properties`."""

    tgi_compat: bool = False
    """Answers as TGI's clients read them: in a list, with TGI's names and details, streams as server-sent events."""
    rolling_batch: bool = True
    """false = dynamic batches: one text too is answered in a list, as several always are."""
    output_formatter: str = ""
    """For requests that name none: "jsonlines" and others, an entry point's name, "module:function"; "" = by
    `stream`"""
    input_formatter: str = ""
    """Reads the bodies of `/invocations` in a form of your own: an entry point's name, or "module:function"."""
    models: dict[str, LmiModelConfig] = {}
    """Different settings of single models, by their names."""
