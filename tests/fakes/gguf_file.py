"""GGUF files for tests: metadata and tensors, written and read by the public description of the format (version 3)."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

ALIGNMENT = 32
_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

Floats = np.ndarray[Any, np.dtype[np.float32]]


def copy_with_template(source: Path, target: Path, template: str | None) -> Path:
    """A copy of a model file with another chat template; None = with none."""
    return copy_with(source, target, {"tokenizer.chat_template": template})


def copy_with(source: Path, target: Path, changes: Mapping[str, Any]) -> Path:
    """A copy of a model file with other metadata; None = without that key."""
    raw = source.read_bytes()
    version, tensors, pairs = struct.unpack_from("<IQQ", raw, 4)
    at, kept = 24, []
    for _ in range(pairs):
        (length,) = struct.unpack_from("<Q", raw, at)
        end = _value_end(raw, at + 8 + length)
        if raw[at + 8 : at + 8 + length].decode() not in changes:
            kept.append(raw[at:end])
        at = end
    infos = at
    for _ in range(tensors):
        (length,) = struct.unpack_from("<Q", raw, at)
        (dimensions,) = struct.unpack_from("<I", raw, at + 8 + length)
        at += 8 + length + 4 + 8 * dimensions + 12
    kept += [_pair(key, value) for key, value in changes.items() if value is not None]
    head = b"GGUF" + struct.pack("<IQQ", version, tensors, len(kept)) + b"".join(kept) + raw[infos:at]
    target.write_bytes(_padded(head) + raw[at + -at % ALIGNMENT :])
    return target


def write_model(target: Path, metadata: Mapping[str, Any], tensors: Mapping[str, Floats]) -> Path:
    """A model file of 32-bit floats."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join([_pair(key, value) for key, value in metadata.items()])
    data = b""
    for name, tensor in tensors.items():
        shape = tensor.shape[::-1]
        head += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data))
        data += _padded(tensor.astype(np.float32).tobytes())
    target.write_bytes(_padded(head) + data)
    return target


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
