"""The option ``home``, shared by all modules that work in a client home."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  home:
    description:
      - Folder of the client on the host. It is the client's alone and has mode 0700.
      - Several clients can live side by side, each in its own folder.
    type: path
    default: ~/.monkey-client/default
"""
