# Copyright: Monkey developers
# SPDX-License-Identifier: Apache-2.0
"""The option ``monkeyfs``, documented once."""

from __future__ import annotations


class ModuleDocFragment:
    """Doc fragment ``monkey.runner.monkeyfs``."""

    DOCUMENTATION = r"""
options:
  monkeyfs:
    description:
      - Folder of the content-addressed store on the control machine. Made when it is missing.
    type: path
    required: true
"""
