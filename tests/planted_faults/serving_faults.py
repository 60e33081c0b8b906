"""Planted faults of the serving end: processor, links, slots, tombstones, clocks, drain, subscriptions, letters."""

from typing import Final

from tests.planted_faults.fault import Fault

_SERVER: Final = "base/tg_base/server/"
_PROTOCOL: Final = "base/tg_base/protocol/"

SERVING: Final = (
    Fault(
        "expired requests are begun",
        _SERVER + "processor.py",
        "        expired = call.remaining is not None and call.remaining <= 0\n",
        "        expired = False\n",
    ),
    Fault(
        "ended attempts are forgotten",
        _SERVER + "processor.py",
        "            self.host.ended.add(call.key, ENDED_SECONDS)\n",
        "",
    ),
    Fault(
        "cancelled attempts are forgotten",
        _SERVER + "host.py",
        "            self.cancelled.add(key, ttl)\n",
        "            pass\n",
    ),
    Fault(
        "the last chunk is lost on drain",
        _SERVER + "link_pool.py",
        "        flushes = [asyncio.create_task(link.flush()) for link in self]\n",
        "        flushes: list[asyncio.Task[None]] = []\n",
    ),
    Fault(
        "a flush does not wait for what is in flight",
        _PROTOCOL + "link_sender.py",
        "        for _ in range(MAX_IN_FLIGHT_MESSAGES):\n            await self._room.acquire()\n"
        "        for _ in range(MAX_IN_FLIGHT_MESSAGES):\n            self._room.release()\n",
        "",
        found_by="tests/unit/test_link.py::test_what_is_flushed_the_bus_has_taken",
    ),
    Fault(
        "a drain waits for nobody",
        _SERVER + "processor.py",
        "            left = self.host.rest_of(self._grace)\n",
        "            left = 0.0\n",
    ),
    Fault(
        "what has begun is handed back",
        _SERVER + "request_task.py",
        "            if self._leaving and not begun:\n",
        "            if self._leaving:\n",
    ),
    Fault(
        "a draining processor announces that it takes requests",
        _SERVER + "processor.py",
        "            leaving=self._leaving or is_deaf or",
        "            leaving=is_deaf or",
        found_by="tests/flow/test_leaving_process.py::test_what_runs_gets_the_configured_time_to_finish",
    ),
    Fault(
        "a link's window is eight times as large",
        _PROTOCOL + "link_sender.py",
        "MAX_UNACKED_MESSAGES = 256\n",
        "MAX_UNACKED_MESSAGES = 2048\n",
    ),
    Fault(
        "a link's window has no bound of bytes",
        _PROTOCOL + "link_sender.py",
        "        return len(self._unacked) >= MAX_UNACKED_MESSAGES or self._unacked_bytes >= MAX_UNACKED_BYTES\n",
        "        return len(self._unacked) >= MAX_UNACKED_MESSAGES\n",
        found_by="tests/unit/test_link.py::test_what_is_not_acknowledged_is_bounded_in_messages_and_in_bytes",
    ),
    Fault(
        "what a requestor misses is not sent again",
        _PROTOCOL + "link_sender.py",
        "            self._resend_from = first if self._resend_from is None else min(first, self._resend_from)\n",
        "",
    ),
    Fault(
        "one message too many counts as acknowledged",
        _PROTOCOL + "link_sender.py",
        "        for seq in [seq for seq in self._unacked if seq <= ack.seq]:\n",
        "        for seq in [seq for seq in self._unacked if seq <= ack.seq + 1]:\n",
        found_by="tests/unit/test_link.py::test_a_reader_that_has_forgotten_gets_what_it_has_not_acknowledged",
    ),
    Fault(
        "a link that begins anew keeps its name",
        _PROTOCOL + "link_sender.py",
        '        self.name = f"{self._processor}/{new_number()}"\n        self._epoch = 0\n',
        "        self._epoch = 0\n",
        found_by="tests/unit/test_link.py::test_a_reader_that_has_forgotten_gets_what_it_has_not_acknowledged",
    ),
    Fault(
        "a link that begins anew forgets what was not acknowledged",
        _PROTOCOL + "link_sender.py",
        "        unacked = enumerate(self._unacked.values())\n",
        "        unacked = enumerate(())\n",
        found_by="tests/unit/test_link.py::test_a_reader_that_has_forgotten_gets_what_it_has_not_acknowledged",
    ),
    Fault(
        "generations of a dead requestor go on",
        _SERVER + "host.py",
        "            for key in self.links.silent(silence):\n",
        "            for key in ():\n",
    ),
    Fault(
        "an old request revives a dead requestor",
        _SERVER + "link_pool.py",
        "                link.received_at = -math.inf\n",
        "                pass\n",
        found_by="tests/unit/test_link_pool.py"
        "::test_the_rest_of_a_queue_waits_no_longer_once_nobody_has_confirmed_its_beginning",
    ),
    Fault(
        "a heartbeat is no sign of life",
        _SERVER + "link_pool.py",
        "        self.note_alive(heartbeat.inbox)\n        if (link :=",
        "        if (link :=",
    ),
    Fault(
        "a running request is begun once more by a copy of it",
        _SERVER + "processor.py",
        "        if not (expired or key in host.running or key in host.ended or key in host.cancelled):\n",
        "        if not (expired or key in host.ended or key in host.cancelled):\n",
    ),
    Fault(
        "what has waited for five seconds cannot be a redelivery",
        _PROTOCOL + "request_headers.py",
        "FRESH_SECONDS = 0.05\n",
        "FRESH_SECONDS = 5.0\n",
    ),
    Fault(
        "a suspended process begins what another one has",
        _SERVER + "request_task.py",
        "        patience = math.inf if self._call.reply is None else self._patience\n",
        "        patience = math.inf\n",
        found_by="tests/unit/test_work.py::test_what_was_fresh_before_its_process_was_suspended_is_asked_about",
    ),
    Fault(
        "what was sent past the queue begins unasked",
        _PROTOCOL + "request_headers.py",
        "queue=delivery.properties[QUEUE_PROPERTY], fresh=False)",
        "queue=delivery.properties[QUEUE_PROPERTY])",
        found_by="tests/flow/test_warm_processes.py::test_the_slot_of_an_answer_that_has_ended_is_free_at_once",
    ),
    Fault(
        "one request more than slots",
        _SERVER + "slots.py",
        "        self._free = asyncio.Semaphore(capacity)\n",
        "        self._free = asyncio.Semaphore(capacity + 1)\n",
    ),
    Fault(
        "a slot is not given back",
        _SERVER + "slots.py",
        "            self.taken = False\n            self._slots.release()\n",
        "            self.taken = False\n",
    ),
    Fault(
        "a request for which no slot is free is dropped",
        _SERVER + "request_task.py",
        '            responder.signal("returned")\n            return None\n',
        "            return None\n",
    ),
    Fault(
        "a lost part of a body is not asked for again",
        _SERVER + "body_receiver.py",
        "if not await is_set_within(self._grown, ASK_AGAIN_SECONDS):\n",
        "if not await is_set_within(self._grown, 1e9):\n",
        found_by="tests/flow/test_large_requests.py::test_a_part_that_is_lost_is_asked_for_again",
    ),
    Fault(
        "a part of a body that comes twice is there twice",
        _SERVER + "body_receiver.py",
        "        if self.size <= offset < self.size + WINDOW_BYTES and part:\n            self._early[offset] = part\n",
        "        if offset <= self.size + WINDOW_BYTES and part:\n"
        "            self._early[max(offset, self.size)] = part\n",
        found_by="tests/unit/test_body_receiver.py::test_parts_that_come_late_or_twice_are_there_once",
    ),
    Fault(
        "tombstones are kept for ever",
        _SERVER + "tombstones.py",
        "        while self and next(iter(self.values())) < now:\n",
        "        while self and next(iter(self.values())) < now - 3600:\n",
        found_by="tests/unit/test_tombstones.py::test_each_copy_finds_an_attempt_until_its_time_is_over",
    ),
    Fault(
        "the time of a suspended process goes on",
        _PROTOCOL + "clocks.py",
        "        self._overslept += max(self._time() - self._due, 0.0)\n",
        "",
        found_by="tests/unit/test_awake_clock.py"
        "::test_what_comes_before_the_sleeper_wakes_has_the_time_at_which_he_should_have",
    ),
    Fault(
        "a clock that was set is believed for a minute",
        _PROTOCOL + "clocks.py",
        "        if known is None or abs(age - known.lowest) > JUMP_SECONDS:\n",
        "        if known is None:\n",
        found_by="tests/unit/test_publisher_clocks.py::test_a_clock_that_was_set_shows_by_the_next_heartbeats",
    ),
    Fault(
        "a message that cannot be read ends its reader",
        _PROTOCOL + "subscriptions.py",
        '            log.warning("message.refused", topic=topic, reason=error.message)\n',
        '            log.warning("message.refused", topic=topic, reason=error.message)\n            return\n',
    ),
    Fault(
        "an unreadable request is acknowledged without a dead letter",
        _SERVER + "processor.py",
        "        if await self._publish_dead_letter(route, delivery.body, error.message):\n"
        "            delivery.ack()\n",
        "        if True:\n            delivery.ack()\n",
        found_by="tests/flow/test_stream_protocol.py::test_poison_goes_to_the_dead_letters_and_its_sender_hears",
    ),
    Fault(
        "a dead letter that is too large is lost",
        _PROTOCOL + "dead_letter.py",
        '        except TooLarge:\n            await bus.publish(topic, b"", {"reason": reason})\n',
        "        except TooLarge:\n            pass\n",
        found_by="tests/unit/test_dead_letter.py::test_a_letter_that_is_too_large_has_its_reason_alone",
    ),
    Fault(
        "a link is closed by a coroutine that nobody awaits",
        _SERVER + "link_pool.py",
        "                await _stop(self._sending.pop(inbox))\n",
        "                _stop(self._sending.pop(inbox))\n",
    ),
    Fault(
        "an answer that is over the broker's limit stops its link",
        _PROTOCOL + "link_sender.py",
        "            except TooLarge:\n",
        "            except ZeroDivisionError:\n",
    ),
)
