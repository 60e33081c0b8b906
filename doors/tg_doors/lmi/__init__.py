"""LMI's protocol, of DJL's containers: raw text to text, in several shapes, and the interface of custom formatters."""

from tg_doors.lmi.custom_formatters import InputFormatter, OutputFormatter, OutputStep
from tg_doors.lmi.dialect import LMI, MOUNTS, Lmi

__all__ = ["LMI", "MOUNTS", "InputFormatter", "Lmi", "OutputFormatter", "OutputStep"]
