"""GGUF models in the process for Tokengrid, by llama.cpp."""
