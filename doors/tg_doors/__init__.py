"""LMTP, LMI, TGI and MLC-LLM at Tokengrid's gateway."""
