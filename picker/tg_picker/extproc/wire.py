"""Envoy's messages of external processing, from the descriptors that protoc compiled; `wire.pyi` has their types.

It does not use protoc's Python code, which the protobuf runtime refuses if it is older than the compiler.
"""

from importlib.resources import files

# Importing these registers a file to which our descriptors refer.
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2  # noqa: F401

_read = descriptor_pb2.FileDescriptorSet.FromString(
    files(__package__).joinpath("external_processor.binpb").read_bytes()
)
_found = message_factory.GetMessages(_read.file, descriptor_pool.Default())
globals().update({name.rpartition(".")[2]: message for name, message in _found.items()})
