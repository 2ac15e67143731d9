"""The JSON schema of `job.yml`, for editors."""

from __future__ import annotations

from typing import Any

from monkey.jobfile.model import JobFile


def json_schema() -> dict[str, Any]:
    """The schema (draft 2020-12), made from the model; a key with nothing behind it is allowed, as when reading."""
    schema = JobFile.model_json_schema(mode="validation")
    for section in (schema, *schema.get("$defs", {}).values()):
        for name, rule in section.get("properties", {}).items():
            if name not in section.get("required", ()):
                section["properties"][name] = _or_nothing(rule)
    persist = schema["$defs"]["PersistItem"]
    persist.pop("required", None)
    schema["$defs"]["PersistItem"] = {"anyOf": [{"type": "string"}, persist]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Monkey's job.yml"}


def _or_nothing(rule: dict[str, Any]) -> dict[str, Any]:
    nothing = {"type": "null"}
    if nothing in rule.get("anyOf", ()):
        return rule
    kept: dict[str, Any] = {key: rule[key] for key in ("title", "description", "default") if key in rule}
    return {"anyOf": [{key: rule[key] for key in rule if key not in kept}, nothing], **kept}
