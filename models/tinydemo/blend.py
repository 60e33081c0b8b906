"""Blend the weights of two models of which the later one went on from the earlier one. Needs numpy.

    python blend.py EARLIER/model.npz LATER/model.npz SHARE OUT/model.npz

SHARE of the later one, from 0 to 1: it keeps more of what the earlier one knew than training alone. The file has 16-bit
floats, which is half the size.
"""

import sys

import numpy as np


def main():
    """Write the file that the command line asks for."""
    earlier, later, share, out = np.load(sys.argv[1]), np.load(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    wide = {name: (earlier[name].astype(np.float32), later[name].astype(np.float32)) for name in earlier.files}
    mixed = {name: before * (1 - share) + after * share for name, (before, after) in wide.items()}
    np.savez(out, **{name: values.astype(np.float16) for name, values in mixed.items()})


if __name__ == "__main__":
    main()
