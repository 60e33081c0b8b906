"""Planted faults of the requesting end: requestor, inbox, membership, cancels, bodies, permits, warm processes."""

from typing import Final

from tests.planted_faults.fault import Fault

_CLIENT: Final = "base/tg_base/client/"

REQUESTING: Final = (
    Fault(
        "nothing is cancelled when a caller leaves",
        _CLIENT + "attempts.py",
        "        if not stream.complete:\n            self._cancel(stream)\n",
        "        if not stream.complete:\n",
    ),
    Fault(
        "what is still queued is not cancelled",
        _CLIENT + "attempts.py",
        "        else:\n            self._cancel_queued(stream)\n\n    def _cancel_queued",
        "\n    def _cancel_queued",
    ),
    Fault(
        "a lost cancel is not repeated",
        _CLIENT + "control_sender.py",
        "        return tuple(key for to, key in self._cancelled if to == processor)\n",
        "        return ()\n",
    ),
    Fault(
        "a cancelled request is not remembered for processors that come later",
        _CLIENT + "control_sender.py",
        "        if key in self._withdrawn:\n            self._tell_withdrawn(processor)\n",
        "",
        found_by="tests/unit/test_control_sender.py"
        "::test_a_new_processor_that_asks_about_one_cancelled_attempt_is_told_of_all",
    ),
    Fault(
        "no second attempt after a death before the first token",
        _CLIENT + "attempts.py",
        "        if stream.deaths >= MAX_ATTEMPTS or (",
        "        if stream.deaths >= 1 or (",
    ),
    Fault(
        "a second attempt although something was shown",
        _CLIENT + "attempt.py",
        "        return self.pieces > 0 or self.begun_as > 0\n",
        "        return self.begun_as > 0\n",
    ),
    Fault(
        "a second attempt although the permit was given",
        _CLIENT + "request_sender.py",
        "            permit.begun = not permit.repeats\n",
        "",
        worlds="permits",
    ),
    Fault(
        "a request begins without its caller's permit",
        _CLIENT + "begin_permit.py",
        "                self.granted = self.granted or await self._check()\n",
        "                self.granted = True\n",
        found_by="tests/flow/test_second_copy.py::test_nothing_is_begun_before_the_caller_permits_it",
    ),
    Fault(
        "frames of an earlier attempt are taken",
        _CLIENT + "attempts.py",
        "if stream is None or stream.attempt.key.attempt != frame.attempt:",
        "if stream is None:",
    ),
    Fault(
        "frames of a second processor are taken",
        _CLIENT + "attempts.py",
        "        return stream if stream.attempt.processor in (None, processor) else None\n",
        "        return stream\n",
    ),
    Fault(
        "a returned request is not published again",
        _CLIENT + "attempts.py",
        "        else:\n            self._ask_elsewhere(stream)\n\n    def check",
        "\n    def check",
    ),
    Fault(
        "a request that a dead process swallowed waits for ever",
        _CLIENT + "membership.py",
        "        return any(self._could_take(member, service, waited, long) for",
        "        return False and any(self._could_take(member, service, waited, long) for",
    ),
    Fault(
        "a confirmation although something was shown",
        _CLIENT + "request_sender.py",
        "        if stream.failed or (stream.attempt.pieces and not stream.attempt.begun_as):\n",
        "        if stream.failed:\n",
    ),
    Fault(
        "messages are passed on in the order in which they come",
        _CLIENT + "inbox.py",
        "        if seq == self.expected and not self._early:\n            self.expected += 1\n",
        "        if seq >= self.expected and not self._early:\n            self.expected = seq + 1\n",
    ),
    Fault(
        "a lost message is asked for once",
        _CLIENT + "inbox.py",
        "        if now - end.asked_at >= NACK_INTERVAL_SECONDS:\n",
        "        if end.asked_at < 0:\n",
    ),
    Fault(
        "what a sender announces is not heeded",
        _CLIENT + "inbox.py",
        "                end.reader.on_announced(state.sent)\n",
        "",
    ),
    Fault(
        "a replaced link is read on",
        _CLIENT + "inbox.py",
        "            if end is not None and order < end.order:\n                return None\n",
        "",
        found_by="tests/unit/test_link.py::test_messages_of_a_replaced_link_are_passed_over",
    ),
    Fault(
        "a receiving end is forgotten while its link is open",
        _CLIENT + "inbox.py",
        "            elif end.received_at < now - seconds:\n",
        "            elif end.received_at < now - 1.0:\n",
    ),
    Fault(
        "the dead are never found",
        _CLIENT + "liveness.py",
        "            dead = self.presence.expire()\n",
        "            dead = {}\n",
    ),
    Fault(
        "a process does not check itself before it takes others for dead",
        "base/tg_base/protocol/heartbeat.py",
        "        return self._returned or self._time() - self._published_at >= self._patience\n",
        "        return True\n",
        found_by="tests/unit/test_echo.py::test_a_silence_is_real_once_the_own_echo_is_back_or_overdue",
    ),
    Fault(
        "a queue that nobody serves is waited for",
        _CLIENT + "membership.py",
        "        return listened > self._timing.dead_after and not self.serving(queue)\n",
        "        return False\n",
        found_by="tests/flow/test_stream_protocol.py::test_nobody_serves",
    ),
    Fault(
        "what has ended counts as unanswered for ever",
        _CLIENT + "attempts.py",
        "        self._admission.unanswered[attempt.route.request] -= 1\n",
        "",
        found_by="tests/flow/test_warm_processes.py::test_the_slot_of_an_answer_that_has_ended_is_free_at_once",
    ),
    Fault(
        "a request is sent to a warm process without room",
        _CLIENT + "warm_processes.py",
        "        if service is None or service.room <= 0 or len(stream.body) > service.presence.request_bytes:\n",
        "        if service is None or len(stream.body) > service.presence.request_bytes:\n",
        found_by="tests/flow/test_warm_processes.py::test_what_the_warm_process_has_no_slot_for_is_queued",
    ),
    Fault(
        "a slow reader's stream is not bounded",
        _CLIENT + "response_stream.py",
        "        if self._size > MAX_BUFFERED_BYTES and len(self._frames) > 1:\n",
        "        if self._size > 64 * MAX_BUFFERED_BYTES and len(self._frames) > 1:\n",
        found_by="tests/unit/test_response_stream.py::test_a_reader_that_does_not_read",
    ),
    Fault(
        "what one may have begun is begun by another",
        _CLIENT + "attempts.py",
        "or (stream.begun and not self._go_on(stream, error)):",
        "or (stream.attempt.answered and not self._go_on(stream, error)):",
        worlds="permits",
    ),
    Fault(
        "an answer goes on after thinking",
        _CLIENT + "asked_stream.py",
        "gc=False, forbid_unknown_fields=True):",
        "gc=False):",
        found_by="tests/flow/test_continued_answers.py::test_what_is_not_exact_ends_as_before",
    ),
    Fault(
        "cancels to the dead are kept for ever",
        _CLIENT + "requestor.py",
        "            self._controls.sweep()\n",
        "",
    ),
)
