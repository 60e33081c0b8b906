"""The ways in which an agent reasons, one file each, over the same loop."""
