"""Planted faults beside the stream protocol: guard and answer builder, and the gateway's relay."""

from typing import Final

from tests.planted_faults.fault import Fault

ANSWERING: Final = (
    Fault(
        "a stream without its end counts as complete",
        "base/tg_base/llm/guard.py",
        "            if not guard.finished:\n                raise IncompleteStream",
        "            if False:\n                raise IncompleteStream",
        found_by="tests/unit/test_stream_guard.py::test_a_stream_without_terminal_marker_is_incomplete",
    ),
    Fault(
        "keep-alives without content restart the clock",
        "base/tg_base/llm/guard.py",
        "        elif chunk.text or chunk.has_content:\n            self._watch.saw_content = True\n",
        "        else:\n            self._watch.saw_content = True\n",
        found_by="tests/unit/test_stream_guard.py::test_each_clock_runs_out",
    ),
    Fault(
        "text after the end is passed on",
        "base/tg_base/llm/guard.py",
        "            chunk = LlmChunk().with_usage(chunk.usage)\n",
        "            pass\n",
        found_by="tests/flow/test_absurd_numbers.py::test_what_follows_the_end_makes_the_answer_neither_less_nor_more",
    ),
    Fault(
        "tokens of a stream that was left are not counted",
        "base/tg_base/llm/provider_call.py",
        "        if self.operation not in PAID_OPERATIONS:\n",
        "        if error is None:\n",
        found_by="tests/flow/test_stream_protocol.py::test_tokens_are_counted_also_of_a_stream_that_was_left",
    ),
    Fault(
        "a call of a model that its client leaves counts as complete",
        "base/tg_base/llm/guard.py",
        "        call.end(None if guard.finished else sys.exception())\n",
        "        call.end(None)\n",
        found_by="tests/flow/test_usage_records.py::test_a_call_that_its_client_leaves_is_estimated_within_a_tenth",
    ),
    Fault(
        "a record of usage that the bus has refused is forgotten",
        "base/tg_base/protocol/usage_writer.py",
        "            return False\n        # Remove the records",
        "        # Remove the records",
        found_by="tests/unit/test_usage_writer.py::test_what_the_bus_refuses_is_published_again",
    ),
    Fault(
        "a call that has died with its process is not recorded",
        "base/tg_base/client/call_account.py",
        "                    self._record(record or _make_record(attempt), dead)\n",
        "                    pass\n",
        found_by="tests/flow/test_asked_calls.py::test_a_process_that_is_killed_before_its_record_has_left",
    ),
    Fault(
        "a retry in which its processor is killed passes for the first call",
        "base/tg_base/server/usage_account.py",
        "            self.put(replace(record, call=FAILED_CALLS + self.retried))\n",
        "            self.record(record)\n",
        found_by="tests/flow/test_asked_calls.py::test_a_process_that_is_killed_in_its_retry",
    ),
    Fault(
        "the call of an answer that was adopted is another one for its adopter",
        "base/tg_base/client/attempt.py",
        "origin.attempt % ADOPTED, origin.processor",
        "origin.attempt, origin.processor",
        found_by="tests/flow/test_asked_calls.py::test_a_process_that_is_killed_in_an_answer_that_was_adopted_twice",
    ),
    Fault(
        "the records of an embedded process end with it",
        "flow/tg_flow/usage/usage_kind.py",
        "        stack.push_async_callback(reader.finish)\n",
        "        pass\n",
        found_by="tests/flow/test_usage_reports.py::test_an_embedded_process_that_ends_at_once_has_counted_all",
    ),
    Fault(
        "a key sees and stops the streams of another one",
        "gateway/tg_gateway/relay/live_part.py",
        "for each in self._relay.running if sees is None or sees == each.entry.key)",
        "for each in self._relay.running)",
        found_by="tests/flow/test_several_gateways.py::test_a_key_sees_and_stops_its_own_streams_through_any_gateway",
    ),
    Fault(
        "a late reader of the live view gets a change of what it has not seen",
        "gateway/tg_gateway/relay/live.py",
        "view.change if seen and view.follows == seen else",
        "view.change if seen else",
        found_by="tests/flow/test_live.py::test_a_late_reader_gets_the_whole_document_anew",
    ),
    Fault(
        "a key's spending is not ended when its client leaves",
        "gateway/tg_gateway/relay/relay.py",
        "        try:\n"
        "            await self._asked.__aexit__(kind, error, tb)\n"
        "        finally:\n"
        "            self._spending.__exit__(kind, error, tb)\n",
        "        await self._asked.__aexit__(kind, error, tb)\n"
        "        if error is None:\n"
        "            self._spending.__exit__(kind, error, tb)\n",
        found_by="tests/flow/test_key_limits.py::test_a_client_that_hangs_up_gives_its_stream_back",
    ),
    Fault(
        "work goes on for a client that has left",
        "gateway/tg_gateway/relay/relay.py",
        "        try:\n"
        "            await self._asked.__aexit__(kind, error, tb)\n"
        "        finally:\n"
        "            self._spending.__exit__(kind, error, tb)\n",
        "        try:\n"
        "            if error is None:\n"
        "                await self._asked.__aexit__(kind, error, tb)\n"
        "        finally:\n"
        "            self._spending.__exit__(kind, error, tb)\n",
        found_by="tests/flow/test_key_limits.py::test_a_client_that_hangs_up_gives_its_stream_back",
    ),
)
