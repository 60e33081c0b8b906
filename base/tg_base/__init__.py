"""How it travels. Import from its packages: each has a face, and this one runs before any of them.

runtime, bus <- telemetry <- protocol <- client, server <- llm; config names what all of them read.
"""
