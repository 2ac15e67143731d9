"""Which attempts fit on the host at once, and which GPUs they get."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from . import machine


class Slots:
    """What the host offers less what running attempts hold. Amounts that were not given are what the machine has."""

    def __init__(self, given: Dict[str, Any]) -> None:
        self._machine_gpus: Optional[int] = None
        self._held: Dict[str, Dict[str, Any]] = {}
        self.set(given)

    def set(self, given: Dict[str, Any]) -> None:
        """Offer other amounts from now on; what runs goes on."""
        self.cpus = float(given.get("cpus") or machine.cpus())
        self.memory_mb = float(given.get("memory_mb") or machine.memory_mb()["total"])
        self.max_jobs: Optional[int] = given.get("max_jobs")
        gpus = given.get("gpus")
        if gpus is None:
            if self._machine_gpus is None:
                self._machine_gpus = len(machine.gpus())
            gpus = self._machine_gpus
        self.gpus = int(gpus)

    def refuse(self, wanted: Dict[str, Any]) -> Optional[str]:
        """Why an attempt could never run here, None when it could."""
        for what, offered in (("cpus", self.cpus), ("gpus", self.gpus), ("memory_mb", self.memory_mb)):
            if (wanted[what] or 0) > offered:
                return f"it asks for {what} {wanted[what]:g}, this host offers {offered:g}"
        return None

    def take(self, key: str, wanted: Dict[str, Any]) -> Optional[List[int]]:
        """Take room for an attempt: its GPU indexes, None when it has to wait.

        One that asks for more than the host offers (its slots were made smaller since) runs alone, but never without
        its GPUs.
        """
        free = self._free_gpus()
        if len(free) < wanted["gpus"] or (self._held and not self._fits(wanted)):
            return None
        indexes = free[: wanted["gpus"]]
        self.hold(key, wanted, indexes)
        return indexes

    def _fits(self, wanted: Dict[str, Any]) -> bool:
        if self.max_jobs is not None and len(self._held) >= self.max_jobs:
            return False
        used_cpus = sum(held["cpus"] for held in self._held.values())
        used_memory = sum(held["memory_mb"] or 0 for held in self._held.values())
        # A thousandth of a CPU: sums of fractions such as 0.1 are not exact.
        return used_cpus + wanted["cpus"] <= self.cpus + 0.001 and used_memory + (wanted["memory_mb"] or 0) <= (
            self.memory_mb
        )

    def _free_gpus(self) -> List[int]:
        used = {index for held in self._held.values() for index in held["indexes"]}
        return [index for index in range(self.gpus) if index not in used]

    def hold(self, key: str, wanted: Dict[str, Any], indexes: List[int]) -> None:
        """Count an attempt that runs already."""
        self._held[key] = dict(wanted, indexes=list(indexes))

    def give_back(self, key: str) -> None:
        """An attempt ended."""
        self._held.pop(key, None)
