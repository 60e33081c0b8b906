"""LMI's protocol, of DJL's containers: raw text to text, in several shapes, and the interface of custom formatters."""

from tg_doors.lmi.custom_formatters import InputFormatter, OutputFormatter, OutputStep
from tg_doors.lmi.dialect import LMI, MOUNTS, Lmi
from tg_doors.lmi.settings import LmiSettings

__all__ = ["LMI", "MOUNTS", "InputFormatter", "Lmi", "LmiSettings", "OutputFormatter", "OutputStep"]
