"""Rules that hold for the whole tree, kept by machine instead of by memory."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).resolve().parents[2]
_RUNNER = _REPOSITORY / "collections/ansible_collections/monkey/runner"
_SKIPPED = {
    ".git",
    ".venv",
    ".monkey",
    ".cache",
    ".ansible",
    "__pycache__",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
}


def _files(folder: Path, suffix: str = "") -> Iterator[Path]:
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - _SKIPPED)
        yield from (Path(where) / name for name in sorted(names) if name.endswith(suffix))


def _roles() -> list[Path]:
    return [
        path for base in (_RUNNER / "roles", _REPOSITORY / "roles") for path in sorted(base.glob("*")) if path.is_dir()
    ]


def _modules() -> list[str]:
    """Names of the collection's modules and action plugins."""
    found = {path.stem for kind in ("modules", "action") for path in (_RUNNER / "plugins" / kind).glob("*.py")}
    return sorted(found)


def _name(path: Path) -> str:
    return str(path.relative_to(_REPOSITORY))


def _imports(path: Path) -> set[str]:
    """Top-level names of what a file imports absolutely, at any depth of its code."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


def test_there_is_something_to_check() -> None:
    assert _roles()
    assert _modules()
    assert len(list(_files(_REPOSITORY / "monkey", ".py"))) > 5


@pytest.mark.parametrize("role", [path.name for path in _roles()])
def test_role_has_a_scenario(role: str) -> None:
    scenario = _REPOSITORY / "molecule" / role
    missing = [name for name in ("molecule.yml", "converge.yml", "verify.yml") if not (scenario / name).is_file()]
    assert not missing, f"role {role} needs molecule/{role}/ with {', '.join(missing)}: see molecule/README.md"
    assert role in (scenario / "converge.yml").read_text()


@pytest.mark.parametrize("module", _modules())
def test_module_has_a_test(module: str) -> None:
    use = re.compile(rf"\bmonkey\.runner\.{module}\b")
    tests = [
        path for suffix in (".py", ".yml") for path in _files(_REPOSITORY / "tests", suffix) if path != Path(__file__)
    ]
    assert any(use.search(path.read_text(encoding="utf-8")) for path in tests), f"no test uses monkey.runner.{module}"


def test_task_files_are_short() -> None:
    folders = [role / kind for role in _roles() for kind in ("tasks", "handlers")]
    folders += [_RUNNER / "playbooks", _REPOSITORY / "playbooks"]
    assert _longer([path for folder in folders for path in _files(folder, ".yml")], 120) == []


def test_source_files_are_short() -> None:
    sources = [
        *_files(_REPOSITORY / "monkey", ".py"),
        *_files(_RUNNER / "plugins", ".py"),
        *_files(_REPOSITORY / "tools", ".py"),
    ]
    assert _longer(sources, 350) == []


def _longer(paths: list[Path], limit: int) -> list[str]:
    counted = [(len(path.read_text(encoding="utf-8").splitlines()), path) for path in paths]
    return [f"{_name(path)}: {lines} lines, more than {limit}" for lines, path in counted if lines > limit]


def test_nothing_is_called_utils() -> None:
    folders = (_REPOSITORY / "monkey", _RUNNER, _REPOSITORY / "tools", _REPOSITORY / "tests")
    assert [_name(path) for folder in folders for path in _files(folder, ".py") if path.stem in ("utils", "util")] == []


@pytest.mark.parametrize(("library", "owner"), [("ansible_runner", "engine"), ("tinydb", "store")])
def test_library_has_one_owner(library: str, owner: str) -> None:
    package = _REPOSITORY / "monkey"
    users = [path for path in [*_files(package, ".py"), _REPOSITORY / "monkeycli.py"] if library in _imports(path)]
    foreign = [_name(path) for path in users if path != package / f"{owner}.py" and package / owner not in path.parents]
    assert foreign == [], f"only monkey/{owner} imports {library}"
    assert users, f"nothing imports {library}: this rule would watch over nothing"


def test_collection_never_imports_the_driver() -> None:
    driver = {"monkey", "monkeycli"}
    assert [_name(path) for path in _files(_REPOSITORY / "collections", ".py") if _imports(path) & driver] == []


def test_collections_are_namespace_packages() -> None:
    # client/__init__.py and the like would shadow what AnsiballZ and pytest put together.
    assert [_name(path) for path in _files(_REPOSITORY / "collections", "__init__.py")] == []


def test_host_keys_are_always_checked() -> None:
    kinds = (".py", ".yml", ".yaml", ".cfg", ".j2", ".sh", ".md", ".toml", "Makefile", "run", ".ini")
    switches = (
        "stricthostkeychecking=no",
        "stricthostkeychecking no",
        "host_key_checking=false",
        "host_key_checking: false",
    )
    found = []
    for path in _files(_REPOSITORY):
        # A test may name what it looks for.
        if path.name.endswith(kinds) and not path.name.startswith("test_"):
            text = path.read_text(encoding="utf-8", errors="replace").lower().replace(" = ", "=")
            found += [_name(path) for switch in switches if switch in text]
    assert found == []


def test_role_readmes_are_made_from_their_argument_specs() -> None:
    generator = _REPOSITORY / "tools/role_readme.py"
    assert generator.is_file()
    done = subprocess.run(
        [sys.executable, generator, "--check"], cwd=_REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"run {_name(generator)}\n{done.stdout}{done.stderr}"
