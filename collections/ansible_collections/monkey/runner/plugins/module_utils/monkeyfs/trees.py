"""Trees: what they are (`entries`), folder to tree (`scanning`) and tree to folder (`writing`), under one name."""

from __future__ import annotations

from .entries import Tree, blobs_of, canonical, check, parse, summary, tree_id
from .errors import MonkeyFSError
from .folders import remove
from .scanning import hash_regular, scan
from .writing import materialise

__all__ = [
    "MonkeyFSError",
    "Tree",
    "blobs_of",
    "canonical",
    "check",
    "hash_regular",
    "materialise",
    "parse",
    "remove",
    "scan",
    "summary",
    "tree_id",
]
