"""Call -> dialect -> its request: parsed in this process, or in a worker if a large body would delay everybody.

The way of a 32 MB request, which no event loop decodes or encodes:

1. `tg_gateway.http` reads it in pieces. `tg_base.runtime.is_costly` decides by its size and its objects that it is
large. 2. `CallParser` sends it to a worker process (`tg_base.runtime.WorkerPool`). The dialect parses it there, and an
`EncodedRequest` comes back: the JSON of the bus. 3. `tg_base.client` queues a message without a body. The processor
that takes it has a slot, asks for the body by `fetch` frames (`tg_base.server.body_receiver`), and gets it in parts
(`tg_base.client.request_sender`). 4. A worker process of the processor decodes and checks it, and writes the
provider's request (`tg_base.llm.prepared_request`). The processor itself keeps an outline, and sends the bytes in
steps.
"""

from tg_gateway.parsing.call_parser import CallParser

__all__ = ["CallParser"]
