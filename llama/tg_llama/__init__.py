"""GGUF models in the process for Tokengrid: by llama.cpp, and the demo model by NumPy alone."""
