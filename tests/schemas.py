"""What of JSON Schema the schemas of this repository use, checked."""

from __future__ import annotations

from typing import Any

TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool,
    "null": type(None)}


def fault(value: Any, schema: dict[str, Any], root: dict[str, Any] | None = None, path: str = "") -> str | None:
    """Where a value is not what a schema says, which is a part of `root`; None if it is."""
    root = schema if root is None else root
    if "$ref" in schema:
        return fault(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, path)
    if ("const" in schema and value != schema["const"]) or ("enum" in schema and value not in schema["enum"]):
        return f"{path}: {value!r}"
    if "anyOf" in schema and all(fault(value, part, root, path) for part in schema["anyOf"]):
        return f"{path}: {str(value)[:100]} is none of these"
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(isinstance(value, TYPES[name]) and (not isinstance(value, bool) or name == "boolean")
                   for name in names):
            return f"{path}: {str(value)[:100]} is not of the type {names}"
    if isinstance(value, list) and "items" in schema:
        return next((text for i, item in enumerate(value)
                     if (text := fault(item, schema["items"], root, f"{path}[{i}]"))), None)
    if isinstance(value, dict):
        known, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
        if missing := set(schema.get("required", ())) - set(value):
            return f"{path}: {missing} is missing"
        if not schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", len(value)):
            return f"{path}: {list(value)}"
        for key, item in value.items():
            below = known.get(key, rest)
            if below is False:
                return f"{path}: {key!r} is not known"
            if below is not True and (text := fault(item, below, root, f"{path}.{key}")):
                return text
    return None
