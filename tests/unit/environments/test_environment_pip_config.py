"""What pip.conf and PIP_* say about where packages come from is what pip itself understands."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from ansible_collections.monkey.runner.plugins.module_utils.environments.pip_config import (
    Sources,
    pip_sources,
    uv_is_configured,
)


def _file(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_later_files_go_before_earlier_and_variables_before_all(tmp_path: Path) -> None:
    _file(tmp_path / "etc" / "pip" / "pip.conf", "[global]\nindex-url = https://site/simple\nfind-links = /a\n")
    _file(
        tmp_path / ".config" / "pip" / "pip.conf",
        "[global]\nindex_url = https://user/simple\n[install]\nno-index = no\n",
    )
    named = _file(
        tmp_path / "named.conf", "[install]\nextra-index-url =\n    https://one/simple\n    https://two/simple\n"
    )
    env = {
        "HOME": str(tmp_path),
        "XDG_CONFIG_DIRS": str(tmp_path / "etc"),
        "PIP_CONFIG_FILE": str(named),
        "PIP_FIND_LINKS": "/b /c",
        "PIP_NO_INDEX": "1",
        "PIP_CERT": "/etc/site.pem",
    }
    sources = pip_sources(env)
    assert sources.index_url == "https://user/simple"
    assert sources.extra_index_urls == ["https://one/simple", "https://two/simple"]
    assert sources.find_links == ["/b", "/c"]
    assert sources.no_index is True
    assert sources.cert == "/etc/site.pem"


def test_files_can_be_switched_off_as_with_pip(tmp_path: Path) -> None:
    _file(tmp_path / ".config" / "pip" / "pip.conf", "[global]\nindex-url = https://user/simple\n")
    assert pip_sources({"HOME": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}) == Sources()


def test_a_broken_file_is_passed_over(tmp_path: Path) -> None:
    broken = _file(tmp_path / "broken.conf", "index-url = without a section\n")
    env = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": str(broken), "PIP_INDEX_URL": "https://mirror/simple"}
    assert pip_sources(env).index_url == "https://mirror/simple"


def test_uv_is_told_the_same_whatever_characters_it_holds() -> None:
    sources = Sources(
        index_url='https://user:p"ss\\@mirror/simple',
        extra_index_urls=["https://other/simple"],
        find_links=["/opt/wheels"],
        trusted_hosts=["mirror"],
        no_index=True,
    )
    said = tomllib.loads(sources.as_uv_toml())
    assert said == {
        "allow-insecure-host": ["mirror"],
        "pip": {
            "index-url": 'https://user:p"ss\\@mirror/simple',
            "extra-index-url": ["https://other/simple"],
            "index-strategy": "unsafe-best-match",
            "find-links": ["/opt/wheels"],
            "no-index": True,
        },
    }


def test_a_user_who_has_configured_uv_is_left_alone(tmp_path: Path) -> None:
    assert uv_is_configured({"HOME": str(tmp_path), "UV_DEFAULT_INDEX": "https://mirror/simple"})
    _file(tmp_path / ".config" / "uv" / "uv.toml", "")
    assert uv_is_configured({"HOME": str(tmp_path)})
