"""How many CPUs this process may keep busy."""

import math
import os
from pathlib import Path

CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_cpus(quota_file: Path = CGROUP_QUOTA) -> int:
    """CPUs that the process may run on, within the quota of its container (cgroup v2); at least 1.

    quota_file: "QUOTA PERIOD" in microseconds, or "max PERIOD" (Linux kernel, cgroup-v2.rst).
    """
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:  # macOS
        count = os.cpu_count() or 1
    try:
        quota, period = map(int, quota_file.read_text(encoding="ascii").split())
        count = min(count, math.ceil(quota / period))
    except (OSError, ValueError, ZeroDivisionError):
        pass  # no quota
    return max(count, 1)
