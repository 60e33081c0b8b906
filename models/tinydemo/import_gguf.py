"""Read a GGUF file of the demo model back, as the folder that training goes on from. Needs numpy and gguf.

    python import_gguf.py MODEL.gguf OUT_FOLDER

OUT_FOLDER gets model.npz, with what the 8-bit numbers stand for, tokenizer.json and config.json. `export_gguf.py` makes
the same file of it, byte for byte.
"""

import shutil
import sys
from pathlib import Path

import gguf
import numpy as np

HERE = Path(__file__).parent


def main():
    """Write the folder that the command line asks for."""
    out = Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    tensors = gguf.GGUFReader(sys.argv[1]).tensors
    weights = {each.name.removesuffix(".weight"): gguf.dequantize(each.data, each.tensor_type) for each in tensors}
    np.savez(out / "model.npz", **weights)
    for name in ("tokenizer.json", "config.json"):
        shutil.copy(HERE / name, out)


if __name__ == "__main__":
    main()
