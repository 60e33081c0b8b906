"""LMTP, LMI, TGI and MLC-LLM at Tokengrid's gateway."""

from tg_doors.lmi_config import LmiConfig, LmiModelConfig

__all__ = ["LmiConfig", "LmiModelConfig"]
