"""Agents: a question in; thoughts, calls of tools, their results and an answer out."""
