"""Where the packaged model is."""

from pathlib import Path

DEMO_MODEL = Path(__file__).with_name("tinydemo-q8_0.gguf")
"""The project's own demo model."""
