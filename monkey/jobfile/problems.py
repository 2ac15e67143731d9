"""From pydantic's errors to one line that names the field, what was found and what was expected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from monkey.errors import UsageProblem
from monkey.jobfile.model import (
    Code,
    DataItem,
    JobFile,
    Loc,
    PersistItem,
    PhaseLimits,
    ProviderItem,
    Resources,
    Run,
    place_name,
)
from monkey.names import did_you_mean

_SECTIONS: dict[tuple[str, ...], frozenset[str]] = {
    (): frozenset(JobFile.model_fields),
    ("run",): frozenset(Run.model_fields),
    ("code",): frozenset(Code.model_fields),
    ("persist",): frozenset(PersistItem.model_fields),
    ("data",): frozenset(DataItem.model_fields),
    ("resources",): frozenset(Resources.model_fields),
    ("phase_limits",): frozenset(PhaseLimits.model_fields),
    ("providers",): frozenset(ProviderItem.model_fields),
}

_EXPECTED = {
    "string_type": "text",
    "string_too_short": "text that is not empty",
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "NAME: VALUE",
    "model_type": "keys and values",
    "model_attributes_type": "keys and values",
}


def build(raw: Mapping[Any, Any], file: str, flags: dict[Loc, str]) -> JobFile:
    """A JobFile of plain values; `flags` says which places came from which flag. Raises UsageProblem."""
    try:
        job = JobFile.model_validate(raw)
    except ValidationError as error:
        place, message = _explain(error.errors(include_url=False))
        raise UsageProblem(place_name(place, file, flags), message) from None
    job._file = file
    job._flags = flags
    _refuse_unsupported(job)
    _refuse_itself(job)
    return job


def _explain(errors: list[ErrorDetails]) -> tuple[Loc, str]:
    """Place and message of the error that most likely is the cause of the others."""
    first = next((error for error in errors if error["type"] == "extra_forbidden"), errors[0])
    loc = tuple(first["loc"])
    place = _place(loc)
    kind = first["type"]
    given = first["input"]
    context = first.get("ctx", {})
    found = f", found {_shown(given)}"
    if kind == "extra_forbidden":
        return loc, "unknown key" + _hint(loc)
    if kind == "missing":
        return loc, "is missing"
    if kind == "invalid_key":
        return loc[:-1], f"expected keys that are text{found}"
    if kind == "value_error":
        said = str(context["error"])
        told = not place or isinstance(given, list | dict) or ", found " in said or repr(given)[:60] in said
        return place, said + ("" if told else found)
    if kind == "literal_error":
        words = str(context["expected"]).replace("'", "").replace(" or ", ", ")
        nearest = did_you_mean(given, words.split(", ")) if isinstance(given, str) else ""
        return place, f"expected one of {words}{found}{nearest}"
    if kind in {"greater_than", "greater_than_equal"}:
        bound = f"above {context['gt']:g}" if kind == "greater_than" else f"of at least {context['ge']:g}"
        return place, f"expected a number {bound}{found}"
    if kind in _EXPECTED:
        # A field that may be one of several types has an error for each.
        kinds = dict.fromkeys(error["type"] for error in errors if _place(tuple(error["loc"])) == place)
        expected = " or ".join(_EXPECTED.get(one, one) for one in kinds)
        quotes = "; put it in quotes" if kind == "string_type" and isinstance(given, int | float) else ""
        return place, f"expected {expected}{found}{quotes}"
    return place, first["msg"][:1].lower() + first["msg"][1:] + found


_UNIONS = frozenset({"disk_size", "spot_price", "secrets"})


def _place(loc: Loc) -> Loc:
    """Without what pydantic adds for the branches of a field that may be one of several types."""
    for n, part in enumerate(loc, 1):
        if part in _UNIONS and loc[0] in {"providers", "secrets"}:
            return loc[:n]
    return loc


def _hint(loc: Loc) -> str:
    section = tuple(part for part in loc[:-1] if isinstance(part, str))
    key = str(loc[-1])
    here = _SECTIONS.get(section, frozenset())
    near = did_you_mean(key, sorted(here))
    if near:
        return near
    for other, keys in _SECTIONS.items():
        if key in keys:
            return f"; it belongs under {other[0]}" if other else "; it belongs at the top of the file"
    return f"; expected one of {', '.join(sorted(here))}"


def _shown(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case dict():
            return "keys and values"
        case list():
            return "a list"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _refuse_itself(job: JobFile) -> None:
    """The core refuses longer circles; this one can be seen already."""
    if job.name is not None and any(one["job"] == job.name for one in job.dependencies):
        field = job.field(("depends_on",))
        raise UsageProblem(field, f"{job.name!r} is the job's own name; expected another job: it would wait for itself")


def _refuse_unsupported(job: JobFile) -> None:
    """What is read but not yet done must not pass as if it were."""
    asked: list[tuple[Loc, bool]] = [
        (("secrets",), bool(job.secrets)),
        (("num_nodes",), job.num_nodes > 1),
        *((("persist", i, "ignore"), bool(item.ignore)) for i, item in enumerate(job.persist)),
        *((("data", i, "type"), item.type == "mount") for i, item in enumerate(job.data)),
    ]
    for loc, wanted in asked:
        if wanted:
            what = "mount is" if loc[-1] == "type" else "is"
            raise UsageProblem(job.field(loc), f"{what} not supported yet" + ("; use copy" if what != "is" else ""))
