"""`job.yml`: one pydantic model, read with the place of every mistake, overridden by flags, checked against the disk.

job = load(Path("job.yml"))
job = merge(job, {"name": "mnist", "resources.cpus": 2, "env": ["K=V"]})
check_paths(job, Path())
"""

from ansible_collections.monkey.runner.plugins.module_utils.units import parse_duration_s, parse_memory_mb

from monkey.jobfile.merging import merge
from monkey.jobfile.model import DataItem, JobFile, PersistItem, ProviderItem
from monkey.jobfile.pathrules import check_paths
from monkey.jobfile.reading import load
from monkey.jobfile.schema import json_schema

__all__ = [
    "DataItem",
    "JobFile",
    "PersistItem",
    "ProviderItem",
    "check_paths",
    "json_schema",
    "load",
    "merge",
    "parse_duration_s",
    "parse_memory_mb",
]
