"""Requestor -> processor: answers a processor's questions before it begins: for a confirmation, or for a large body."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from tg_base.client.begin_permit import BeginPermit
from tg_base.client.body_sender import BodySender
from tg_base.client.control_sender import ControlSender
from tg_base.client.response_stream import AskedStream
from tg_base.protocol import WINDOW_BYTES, Confirmed
from tg_base.runtime import report


class StartConfirmations:
    """Answers processors about streams that have no record yet; about any other stream they get a cancel.

    Args:
        controls: sends to processors.
        bodies: sends bodies.
    """

    def __init__(self, controls: ControlSender, bodies: BodySender) -> None:
        self._controls = controls
        self._bodies = bodies
        self._asking: set[asyncio.Task[Any]] = set()

    def close(self) -> None:
        """Cancel the checks of permits that are still running."""
        for task in self._asking:
            task.cancel()

    def confirm(self, stream: AskedStream, processor: str, question: int) -> None:
        """Confirm that a processor may begin (after its permit, if there is one), or cancel if a record has come."""
        if stream.relayed or stream.failed:
            self._controls.cancel(processor, stream.key)
        elif (permit := stream.permit) is None or permit.sent != stream.attempt:
            self._controls.send(processor, Confirmed(stream.key, question))
        elif permit.granted:
            self._permit(permit, stream, processor, question)
        else:
            self._start(self._permit_granted(permit, stream, processor, question))

    def fetch(self, stream: AskedStream, processor: str, offset: int) -> None:
        """Send the body of a large request, unless the answer is not wanted any more."""
        if stream.relayed or stream.failed:
            self._controls.cancel(processor, stream.key)
            return
        stream.fetched = True
        self._bodies.send(processor, stream.key, stream.body, offset)
        permit = stream.permit
        if permit is not None and len(stream.body) <= offset + WINDOW_BYTES:
            permit.sent = stream.attempt
            # Ask for the permit while the body is on its way, so that the processor need not wait for it later.
            self._start(permit.grant())

    def _start(self, asking: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(asking)
        # asyncio itself keeps no reference to a running task.
        self._asking.add(task)
        task.add_done_callback(self._on_asked)

    def _on_asked(self, task: "asyncio.Task[Any]") -> None:
        self._asking.discard(task)
        report(task)

    def _permit(self, permit: BeginPermit, stream: AskedStream, processor: str, question: int) -> None:
        permit.begun = True
        self._controls.send(processor, Confirmed(stream.key, question))

    async def _permit_granted(self, permit: BeginPermit, stream: AskedStream, processor: str, question: int) -> None:
        key = stream.key
        granted = await permit.grant()
        # The stream may have ended meanwhile, or moved to another processor, which will ask for itself.
        if granted and not (stream.relayed or stream.failed) and (stream.processor, stream.key) == (processor, key):
            self._permit(permit, stream, processor, question)
