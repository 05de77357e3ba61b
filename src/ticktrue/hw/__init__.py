"""What the machine is: chips, links and systems, every number a fact with source, grade and range."""

from ticktrue.hw.chip import Chip, FormatSupport, formats_allowed
from ticktrue.hw.chip_facts import CHIP_FACTS, FactSpec
from ticktrue.hw.fact import Fact, Grade
from ticktrue.hw.gpu import GPU_FACTS, Gpu, GpuFactSpec
from ticktrue.hw.link import HopClass, Link, slot_cycles
from ticktrue.hw.load import SystemSummary, gpu_names, list_gpus, list_systems, load_gpu, load_system
from ticktrue.hw.system import HopRule, Layout, System

__all__ = [
    "CHIP_FACTS",
    "GPU_FACTS",
    "Chip",
    "Fact",
    "FactSpec",
    "FormatSupport",
    "Gpu",
    "GpuFactSpec",
    "Grade",
    "HopClass",
    "HopRule",
    "Layout",
    "Link",
    "System",
    "SystemSummary",
    "formats_allowed",
    "gpu_names",
    "list_gpus",
    "list_systems",
    "load_gpu",
    "load_system",
    "slot_cycles",
]
