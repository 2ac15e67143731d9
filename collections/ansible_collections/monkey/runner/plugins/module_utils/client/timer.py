"""A timer on the clock that also counts a machine's sleep (CLOCK_BOOTTIME): time-outs of select(2) do not."""

from __future__ import annotations

import ctypes
import os
import time
from typing import List, Optional

# include/uapi/linux/timerfd.h
_TFD_TIMER_ABSTIME = 1
# Without timerfd_create(2) nobody sleeps longer than this while a moment is set.
_LOOK_AGAIN_S = 5.0


class _Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


class _Itimerspec(ctypes.Structure):
    _fields_ = [("interval", _Timespec), ("value", _Timespec)]


class BootTimer:
    """Readable from the moment that was set (seconds since boot) until ``clear``; at once after a sleep beyond it."""

    def __init__(self) -> None:
        self._fd = -1
        self._at: Optional[float] = None
        try:
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._fd = self._libc.timerfd_create(int(time.CLOCK_BOOTTIME), os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, AttributeError):
            pass

    def descriptors(self) -> List[int]:
        """What to wait for."""
        return [self._fd] if self._fd >= 0 else []

    def set(self, at: Optional[float]) -> None:
        """Wake at this moment, and at no other; never for None."""
        if at == self._at:
            return
        self._at = at
        if self._fd < 0:
            return
        when = _Itimerspec()
        if at is not None:
            # All zero would mean never.
            nanoseconds = max(1, int(at * 1e9))
            when.value = _Timespec(*divmod(nanoseconds, 10**9))
        if self._libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(when), None):
            os.close(self._fd)
            self._fd = -1

    def clear(self) -> None:
        """It was seen: what is set next is set anew."""
        self._at = None
        try:
            if self._fd >= 0:
                os.read(self._fd, 8)
        except OSError:
            pass

    def longest_s(self) -> float:
        """How long one may sleep on other clocks."""
        return _LOOK_AGAIN_S if self._fd < 0 and self._at is not None else float("inf")

    def close(self) -> None:
        """Give its descriptor back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
