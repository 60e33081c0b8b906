"""Continuous batching over llama.cpp: one model, one context, one owner thread, many streams."""
