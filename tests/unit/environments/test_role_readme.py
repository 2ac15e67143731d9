"""READMEs of roles are made from their argument specs."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import yaml

_REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def role_readme() -> ModuleType:
    spec = importlib.util.spec_from_file_location("role_readme", _REPOSITORY / "tools" / "role_readme.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _role(folder: Path, options: dict[str, object], **more: object) -> Path:
    role = folder / "ansible_collections" / "monkey" / "runner" / "roles" / "thing"
    (role / "meta").mkdir(parents=True)
    main = {"short_description": "Do a thing", "description": ["Uses C(git) and O(thing_a)."], "options": options}
    (role / "meta" / "argument_specs.yml").write_text(yaml.safe_dump({"argument_specs": {"main": {**main, **more}}}))
    return role


def test_the_page_names_every_variable_with_type_default_and_choices(role_readme: ModuleType, tmp_path: Path) -> None:
    role = _role(
        tmp_path,
        {
            "thing_a": {"type": "str", "required": True, "choices": ["x", "y"], "description": "V(x) or V(y|z)."},
            "thing_b": {"type": "list", "elements": "dict", "description": ["One.", "Two."], "default": []}
            | {"options": {"name": {"type": "str", "required": True, "description": "Its name."}}},
            "thing_c": {"type": "bool", "default": False, "description": "Whether."},
        },
    )
    page = role_readme.render(role)
    assert "# monkey.runner.thing\n" in page
    assert "Uses `git` and `thing_a`." in page
    assert "| `thing_a` | str | required | `x` or `y\\|z`. One of `x`, `y`. |" in page
    assert "| `thing_b` | list of dict | `[]` | One. Two. |" in page
    assert "| `thing_b[].name` | str | required | Its name. |" in page
    assert "| `thing_c` | bool | `false` | Whether. |" in page


def test_the_example_can_be_run_and_has_what_is_required(role_readme: ModuleType, tmp_path: Path) -> None:
    role = _role(tmp_path, {"thing_a": {"type": "int", "required": True, "description": "A."}})
    block = role_readme.render(role).split("```yaml\n")[1].split("```")[0]
    assert yaml.safe_load(block)[0]["roles"] == [{"role": "monkey.runner.thing", "vars": {"thing_a": 1}}]
    (role / "meta" / "example.yml").write_text("---\n- name: Mine\n")
    assert "```yaml\n---\n- name: Mine\n```" in role_readme.render(role)


def test_check_names_the_page_that_differs_and_changes_nothing(
    role_readme: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    role = _role(tmp_path, {})
    assert role_readme.main([str(role), "--check"]) == 1
    assert not (role / "README.md").exists()
    assert role_readme.main([str(role)]) == 0
    assert role_readme.main([str(role), "--check"]) == 0
    (role / "README.md").write_text("by hand")
    assert role_readme.main([str(role), "--check"]) == 1
    assert f"{role}/README.md: differs" in capsys.readouterr().err


def test_a_variable_without_description_is_an_error(
    role_readme: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert role_readme.main([str(_role(tmp_path, {"thing_a": {"type": "int"}}))]) == 2
    assert "thing_a: expected a description" in capsys.readouterr().err


def test_pages_here_are_as_their_specs(role_readme: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(role_readme.roles([])) >= 8
    assert role_readme.main(["--check"]) == 0, capsys.readouterr().err
