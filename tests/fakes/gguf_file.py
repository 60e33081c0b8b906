"""GGUF files for tests and figures: metadata and tensors, by the public description of the format (version 3)."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

ALIGNMENT = 32
_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

Floats = np.ndarray[Any, np.dtype[np.float32]]

BLOCK_WEIGHTS = 32
BLOCK: Any = np.dtype([("scale", "<f2"), ("weights", "i1", BLOCK_WEIGHTS)])
"""Weights of the type Q8_0: a scale, and whole numbers that are multiplied by it."""

Blocks = np.ndarray[Any, np.dtype[np.void]]
"""An array of `BLOCK`: its last axis has a 32nd of the tensor's length."""

_F32, _Q8_0 = 0, 8
_HEAD_BYTES = 24


def copy_with_template(source: Path, target: Path, template: str | None) -> Path:
    """A copy of a model file with another chat template; None = with none."""
    return copy_with(source, target, {"tokenizer.chat_template": template})


def copy_with(source: Path, target: Path, changes: Mapping[str, Any]) -> Path:
    """A copy of a model file with other metadata; None = without that key."""
    raw = source.read_bytes()
    version, tensors, _ = struct.unpack_from("<IQQ", raw, 4)
    pairs = _read_pairs(raw)
    at = infos = _HEAD_BYTES + sum(map(len, pairs.values()))
    kept = [pair for key, pair in pairs.items() if key not in changes]
    for _ in range(tensors):
        (length,) = struct.unpack_from("<Q", raw, at)
        (dimensions,) = struct.unpack_from("<I", raw, at + 8 + length)
        at += 8 + length + 4 + 8 * dimensions + 12
    kept += [_pair(key, value) for key, value in changes.items() if value is not None]
    head = b"GGUF" + struct.pack("<IQQ", version, tensors, len(kept)) + b"".join(kept) + raw[infos:at]
    target.write_bytes(_padded(head) + raw[at + -at % ALIGNMENT :])
    return target


def read_vocabulary(source: Path) -> dict[str, bytes]:
    """The pairs of a model file that describe its tokenizer, as `write_model` takes them."""
    return {key: pair for key, pair in _read_pairs(source.read_bytes()).items() if key.startswith("tokenizer.")}


def write_model(target: Path, metadata: Mapping[str, Any], tensors: Mapping[str, Floats | Blocks]) -> Path:
    """A model file of 32-bit floats and of blocks; metadata that are bytes are pairs of another file."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join([value if isinstance(value, bytes) else _pair(key, value) for key, value in metadata.items()])
    offset = 0
    for name, tensor in tensors.items():
        blocks = tensor.dtype == BLOCK
        shape = (*tensor.shape[:-1], tensor.shape[-1] * (BLOCK_WEIGHTS if blocks else 1))[::-1]
        kind = _Q8_0 if blocks else _F32
        head += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
        offset += tensor.nbytes + -tensor.nbytes % ALIGNMENT
    with target.open("wb") as file:
        file.write(_padded(head))
        for tensor in tensors.values():
            # Through memory once: a model of 500 MB would be copied by every join.
            tensor.tofile(file)
            file.write(bytes(-tensor.nbytes % ALIGNMENT))
    return target


def _read_pairs(raw: bytes) -> dict[str, bytes]:
    """Key and value of each of a file's metadata, as they stand in it."""
    (count,) = struct.unpack_from("<Q", raw, 16)
    at, pairs = _HEAD_BYTES, {}
    for _ in range(count):
        (length,) = struct.unpack_from("<Q", raw, at)
        end = _value_end(raw, at + 8 + length)
        pairs[raw[at + 8 : at + 8 + length].decode()] = raw[at:end]
        at = end
    return pairs


def _value_end(raw: bytes, at: int) -> int:
    (kind,) = struct.unpack_from("<I", raw, at)
    return _end(raw, at + 4, kind)


def _end(raw: bytes, at: int, kind: int) -> int:
    if kind == _STRING:
        return int(at + 8 + struct.unpack_from("<Q", raw, at)[0])
    if kind != _ARRAY:
        return at + _SIZES[kind]
    inner, count = struct.unpack_from("<IQ", raw, at)
    at += 12
    for _ in range(count):
        at = _end(raw, at, inner)
    return at


def _pair(key: str, value: Any) -> bytes:
    return _text(key) + struct.pack("<I", _kind(value)) + _value(value)


def _kind(value: Any) -> int:
    kinds = ((bool, _BOOL), (int, _UINT32), (float, _FLOAT32), (str, _STRING), (list, _ARRAY))
    return next(kind for python, kind in kinds if isinstance(value, python))


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        # Lists of numbers are signed in this format's vocabulary, single ones are not.
        kind = _INT32 if _kind(value[0]) == _UINT32 else _kind(value[0])
        return struct.pack("<IQ", kind, len(value)) + b"".join([_value(item) for item in value])
    return struct.pack({_BOOL: "<?", _UINT32: "<I", _FLOAT32: "<f"}[_kind(value)], value)


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _padded(raw: bytes) -> bytes:
    return raw + bytes(-len(raw) % ALIGNMENT)
