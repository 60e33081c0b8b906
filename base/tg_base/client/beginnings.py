"""Requestor -> processor: what a processor asks for before it begins: whether it may, and a large request's body."""

import asyncio

from tg_base.client.begin_permit import BeginPermit
from tg_base.client.body_sender import BodySender
from tg_base.client.control_sender import ControlSender
from tg_base.client.response_stream import AskedStream
from tg_base.protocol import Confirmed
from tg_base.runtime import report


class Beginnings:
    """Answers processors about streams of which no record has come; others are cancelled.

    Args:
        controls: sends to processors.
        bodies: sends bodies.
    """

    def __init__(self, controls: ControlSender, bodies: BodySender) -> None:
        self._controls = controls
        self._bodies = bodies
        self._asking: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Ask no caller any more."""
        for task in self._asking:
            task.cancel()

    def confirm(self, stream: AskedStream, processor: str, question: int) -> None:
        """Confirm a possible redelivery, or that a processor may begin, only if no record of the answer has come."""
        if stream.relayed or stream.failed:
            self._controls.cancel(processor, stream.key)
        elif (permit := stream.permit) is None or permit.granted:
            self._confirm(stream, processor, question)
        else:
            task = asyncio.create_task(self._ask_caller(permit, stream, processor, question))
            # asyncio itself keeps no reference to a running task.
            self._asking.add(task)
            task.add_done_callback(self._on_asked)

    def _on_asked(self, task: "asyncio.Task[None]") -> None:
        self._asking.discard(task)
        report(task)

    def _confirm(self, stream: AskedStream, processor: str, question: int) -> None:
        if stream.permit is not None:
            stream.permit.begun = True
        self._controls.send(processor, Confirmed(stream.key, question))

    async def _ask_caller(self, permit: BeginPermit, stream: AskedStream, processor: str, question: int) -> None:
        key = stream.key
        granted = await permit.grant()
        # Meanwhile it may have ended, or another processor may have been asked, which asks us itself.
        if granted and not (stream.relayed or stream.failed) and (stream.processor, stream.key) == (processor, key):
            self._confirm(stream, processor, question)

    def fetch(self, stream: AskedStream, processor: str, offset: int) -> None:
        """Send the body of a large request, unless the answer is not wanted any more."""
        if stream.relayed or stream.failed:
            self._controls.cancel(processor, stream.key)
        else:
            stream.fetched = True
            self._bodies.send(processor, stream.key, stream.body, offset)
