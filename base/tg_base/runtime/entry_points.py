"""Group and name -> the object that an installed package (ours or not) offers there; finding it imports nothing."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache, reduce
from importlib import import_module
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any

from tg_schema.errors import BadRequest, NotFound, Unavailable

_NAMES = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
_PLACE = re.compile(f"{_NAMES}:{_NAMES}")


@lru_cache
def _read_packages(_path: tuple[str, ...]) -> Callable[..., EntryPoints]:
    """Cached for each `sys.path`: reading the files of all packages takes some 10 ms, for one group as for all."""
    return entry_points().select


def find_entry_points(group: str) -> EntryPoints:
    """All that installed packages offer in the group; a package that is installed later is not among them."""
    return _read_packages(tuple(sys.path))(group=group)


def find_entry_point(group: str, name: str, what: str, place: str, others: Iterable[str] = ()) -> EntryPoint:
    """The entry point with this name in the group, or for this place; `load()` imports it.

    Args:
        group: the group of entry points, as packages declare them.
        name: the name of an entry point, or a place that needs none: "module:name".
        what: the kind of object, for the error.
        place: the form of its place, for the error: "module:Class"; "" = only packages offer it.
        others: known names that no installed package offers.

    Raises:
        NotFound: nobody offers it, or several packages do; the message has all names, or these packages.
    """
    if _PLACE.fullmatch(name):
        return EntryPoint(name, name, group)
    points = find_entry_points(group)
    found = tuple(points.select(name=name))
    if len(found) > 1:
        packages = ", ".join(sorted(point.dist.name for point in found if point.dist))
        raise NotFound(f'several packages have a {what} "{name}": {packages}; uninstall all but one')
    if not found:
        yours = [f'and any {what} of yours as "{place}"'] if place else []
        known = ", ".join([*sorted({*points.names, *others}), *yours])
        raise NotFound(f'there is no {what} "{name}"; known are {known}')
    return found[0]


def load_object(point: EntryPoint) -> object:
    """The object at an entry point's place, possibly within a class; None = its module has no such name."""
    # Do not use `point.load()`: an AttributeError may mean a missing name or a defect of the module.
    module: object = import_module(point.module)
    return reduce(lambda found, name: getattr(found, name, None), point.attr.split("."), module)


def load_function(group: str, name: str, what: str) -> Callable[..., Any]:
    """The function of an entry point, or at "module:function"; arguments as `find_entry_point`.

    Raises:
        NotFound: nobody offers it, or it cannot be imported.
        BadRequest: the object is not a function.
    """
    try:
        found: object = find_entry_point(group, name, what, "module:function").load()
    except (ImportError, AttributeError):
        raise NotFound(f'there is no {what} "{name}" that can be imported: look at its module and name') from None
    if not callable(found):
        raise BadRequest(f'"{name}" is not a function')
    return found


def find_requirement(point: EntryPoint) -> str:
    """The argument of `pip install` for the packages that an entry point needs; "" = unknown."""
    # Do not use `point.extras`, which cuts a name at its hyphens.
    _, bracket, extras = point.value.partition("[")
    return f"{point.dist.name}{bracket}{extras}" if point.dist else ""


@contextmanager
def explaining_absence(owner: str, point: EntryPoint, *option: str) -> Iterator[None]:
    """While an entry point is loaded and used: a package that is missing gets the command that installs it.

    Raises:
        Unavailable: `owner`, which `option` names, needs a package that is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        lacking, requirement = (error.name or "").partition(".")[0], find_requirement(point)
        # A missing package that this file or the entry point always needs is a defect.
        if lacking in {"tg_schema", "tg_base"} or (requirement and lacking == point.module.partition(".")[0]):
            raise
        unknown = f'install the distribution that has the module "{error.name}", or put its folder on PYTHONPATH'
        what = f'run: pip install "{requirement}"' if requirement else unknown
        raise Unavailable(f"{owner} needs a package that is not installed; {what}").at(*option) from None
