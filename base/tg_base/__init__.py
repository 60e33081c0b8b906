"""How it travels. Import from its packages, whose `__init__.py` have all exports; this file runs before any of them.

runtime, bus <- telemetry <- protocol <- client, server <- llm; config has the names that all of them read.
"""
