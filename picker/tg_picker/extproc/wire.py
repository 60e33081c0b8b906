"""Envoy's messages of external processing, by the descriptors that protoc made; `wire.pyi` has their types.

Descriptors and not the Python code of protoc, which the runtime refuses if it is older than the compiler.
"""

from importlib.resources import files

# Its import registers the file that our descriptors refer to.
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2  # noqa: F401

_read = descriptor_pb2.FileDescriptorSet.FromString(
    files(__package__).joinpath("external_processor.binpb").read_bytes()
)
_found = message_factory.GetMessages(_read.file, descriptor_pool.Default())
globals().update({name.rpartition(".")[2]: message for name, message in _found.items()})
