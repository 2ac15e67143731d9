"""The core: the one always-on process of a main node. ``python -m monkey.core --home DIR`` runs it."""
