"""Texts -> HTML: whatever is no HTML of ours is escaped, so that nobody has to remember it."""

from html import escape


class Html(str):
    """Text that is HTML already. Only this module makes it."""

    __slots__ = ()


def element(name: str, *children: str, **attributes: str) -> Html:
    """An element with its end tag. Children that are no `Html`, and all values of attributes, are escaped.

    Args:
        name: of the element.
        children: texts and elements.
        attributes: by name; `_` stands for `-`, and one at the end is left out.
    """
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    inner = "".join(child if isinstance(child, Html) else escape(child) for child in children)
    return Html(f"<{name}{written}>{inner}</{name}>")
