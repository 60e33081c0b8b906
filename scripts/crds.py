"""Kinds of resources -> manifests that teach them to Kubernetes: `python -m scripts.crds` writes them anew."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import yaml
from msgspec import inspect

from tg_picker.pools.kinds import KINDS, MAX_PORTS, Spec

FOLDER = Path(__file__).parents[1] / "picker/tg_picker/pools/crds"
NAMES = {inspect.StrType: "string", inspect.IntType: "integer"}
BOUNDS = {"ge": "minimum", "le": "maximum", "min_length": "minLength", "max_length": "maxLength"}
# What Kubernetes bounds and our types leave to a sentence of their own.
FIELD_BOUNDS = {
    "targetPorts": {"minItems": 1, "maxItems": MAX_PORTS},
    "backendRefs": {"minItems": 1},
    "targets": {"minItems": 1},
    "matchLabels": {"minProperties": 1},
}
HEAD = "# Made by `python -m scripts.crds` of tg_picker/pools/kinds.py.\n"


def manifests() -> dict[str, str]:
    """Name of the file -> its text; one for each kind and group."""
    found: dict[str, str] = {}
    for kind, api_versions in KINDS.items():
        groups: dict[str, list[str]] = defaultdict(list)
        for each in api_versions:
            group, _, version = each.partition("/")
            groups[group].append(version)
        for group, versions in groups.items():
            made = manifest(kind, group, versions)
            found[f"{made['metadata']['name']}.yaml"] = HEAD + yaml.safe_dump(made, sort_keys=False, width=120)
    return found


def manifest(kind: type[Spec], group: str, versions: list[str]) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind; the last version is the stored one."""
    name = kind.__name__
    plural = f"{name.lower()}s"
    annotations: dict[str, Any] = {}
    if group.endswith(".k8s.io"):
        # Kubernetes refuses a kind of its own groups without this, except for kinds that it has approved.
        annotations = {"annotations": {"api-approved.kubernetes.io": "unapproved, made by Tokengrid"}}
    schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": schema_of(inspect.type_info(kind)),
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", **annotations},
        "spec": {
            "group": group,
            "names": {"kind": name, "listKind": f"{name}List", "plural": plural, "singular": name.lower()},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == versions[-1],
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                }
                for version in versions
            ],
        },
    }


def schema_of(told: inspect.Type, field: str = "") -> dict[str, Any]:
    """The schema of a type, inline: Kubernetes knows no references."""
    if isinstance(told, inspect.UnionType):
        return schema_of(next(each for each in told.types if not isinstance(each, inspect.NoneType)))
    if isinstance(told, inspect.StructType):
        return _object(told)
    if isinstance(told, inspect.VarTupleType):
        return {"type": "array", **FIELD_BOUNDS.get(field, {}), "items": schema_of(told.item_type)}
    if isinstance(told, inspect.DictType):
        return {"type": "object", **FIELD_BOUNDS.get(field, {}), "additionalProperties": schema_of(told.value_type)}
    if isinstance(told, inspect.LiteralType):
        return {"type": "string", "enum": list(told.values)}
    bounds = {word: bound for name, word in BOUNDS.items() if (bound := getattr(told, name, None)) is not None}
    return {"type": NAMES[type(told)], **bounds}


def _object(told: inspect.StructType) -> dict[str, Any]:
    properties = {}
    for field in told.fields:
        schema = schema_of(field.type, field.encode_name)
        if isinstance(field.default, str | int) and field.default != "":
            schema["default"] = field.default
        properties[field.encode_name] = schema
    required = [field.encode_name for field in told.fields if field.required]
    return {"type": "object", **({"required": required} if required else {}), "properties": properties}


def main() -> None:
    """Write all files."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in manifests().items():
        (FOLDER / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
