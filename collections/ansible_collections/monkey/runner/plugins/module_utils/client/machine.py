"""What the machine has and how busy it is."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from typing import Any, Dict, List

_NVIDIA_SMI_TIMEOUT_S = 5.0
_QUERY = "index,name,memory.total,memory.used,utilization.gpu"


def cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) or 1


def memory_mb() -> Dict[str, int]:
    """``total`` and ``available`` of /proc/meminfo (proc(5); kB there) in MiB."""
    values = {"MemTotal": 0, "MemAvailable": 0}
    try:
        with open("/proc/meminfo", encoding="ascii") as handle:
            for line in handle:
                name, _colon, rest = line.partition(":")
                if name in values:
                    values[name] = int(rest.split()[0]) // 1024
    except (OSError, ValueError, IndexError):
        pass
    return {"total": values["MemTotal"], "available": values["MemAvailable"]}


def disk_free_mb(folder: str) -> int:
    """MiB that this user may still write in the file system of ``folder``; 0 when it cannot be told."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize // (1024 * 1024)


def _number(text: str) -> int:
    try:
        return int(float(text))
    except ValueError:
        return 0


def gpus() -> List[Dict[str, Any]]:
    """NVIDIA GPUs as nvidia-smi tells them within 5 seconds; none when it is not there or fails."""
    program = shutil.which("nvidia-smi")
    if not program:
        return []
    try:
        done = subprocess.run(
            [program, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_NVIDIA_SMI_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    found = []
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 5 and parts[0].isdigit():
            found.append(
                {
                    "index": int(parts[0]),
                    "name": parts[1],
                    "memory_total_mb": _number(parts[2]),
                    "memory_used_mb": _number(parts[3]),
                    "utilization": _number(parts[4]),
                }
            )
    return found


def now(home: str) -> Dict[str, Any]:
    """The stream's ``machine`` message, without its type."""
    memory = memory_mb()
    return {
        "cpus": cpus(),
        "load": os.getloadavg()[0],
        "memory_total_mb": memory["total"],
        "memory_available_mb": memory["available"],
        "disk_free_mb": disk_free_mb(home),
        "gpus": gpus(),
    }


def facts(home: str) -> Dict[str, Any]:
    """The facts that module ``client`` returns."""
    while not os.path.isdir(home) and home != os.path.dirname(home):
        home = os.path.dirname(home)
    return {
        "cpus": cpus(),
        "memory_mb": memory_mb()["total"],
        "gpus": gpus(),
        "disk_free_mb": disk_free_mb(home),
        "hostname": socket.gethostname(),
    }


def disk_full_message(home: str) -> str:
    """The sentence for a disk that is full."""
    return f"The host's disk is full ({disk_free_mb(home)} MiB free in {home}): free some space and run it again."
