"""What doors send -> one answer: each reader knows the shape of one protocol."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from tests.same_answer.row import Told
from tg_client import TextCompletionResult
from tg_schema import TextCompletionResponse


def read_native(records: list[Any]) -> Told:
    """Records of a stream, or a whole answer as one; on a WebSocket each is in an envelope."""
    found = [record.get("response", record) if "complete" in record else record for record in records]
    found = [record for record in found if "end_of_stream" in record]
    tokens = [token for record in found for token in record.get("tokens", ())]
    return Told(
        "".join(record["response"] for record in found),
        tuple(token["id"] for token in tokens) or None,
        tuple(token["text"] for token in tokens) or None,
        _add(record.get("in_token") for record in found),
        _add(record.get("out_token") for record in found),
        found[-1]["finish_reason"],
    )


def read_result(results: list[Any]) -> Told:
    """The SDK's result."""
    (result,) = results
    assert isinstance(result, TextCompletionResult)
    return Told(result.text, in_token=result.in_token, out_token=result.out_token, reason=result.finish_reason)


def read_records(records: list[Any]) -> Told:
    """The records of the SDK's stream."""
    assert all(isinstance(record, TextCompletionResponse) for record in records)
    whole = TextCompletionResponse.summarize(records)
    return read_native([msgspec.to_builtins(whole)])


def read_chat(chunks: list[Any]) -> Told:
    """OpenAI's chat: chunks, or one completion and its headers."""
    chunks = [chunk for chunk in chunks if "choices" in chunk]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    said = [choice.get("delta") or choice.get("message") or {} for choice in choices]
    tokens = [token for choice in choices for token in ((choice.get("logprobs") or {}).get("content") or ())]
    return _tell_openai(chunks, choices, [one.get("content") for one in said], [token["token"] for token in tokens])


def read_completion(chunks: list[Any]) -> Told:
    """OpenAI's completions: chunks, or one completion and its headers."""
    chunks = [chunk for chunk in chunks if "choices" in chunk]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    tokens = [token for choice in choices for token in ((choice.get("logprobs") or {}).get("tokens") or ())]
    return _tell_openai(chunks, choices, [choice["text"] for choice in choices], tokens)


def _tell_openai(chunks: list[Any], choices: list[Any], texts: list[str | None], tokens: list[str]) -> Told:
    (usage,) = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    (reason,) = [choice["finish_reason"] for choice in choices if choice.get("finish_reason")]
    text = "".join(text or "" for text in texts)
    return Told(text, None, tuple(tokens), usage["prompt_tokens"], usage["completion_tokens"], reason)


def read_response(events: list[Any]) -> Told:
    """OpenAI's Responses: events, or one response and its headers."""
    response = events[-1].get("response") or events[0]
    ((part,),) = [item["content"] for item in response["output"]]
    deltas = "".join(event["delta"] for event in events if event.get("type") == "response.output_text.delta")
    assert deltas in {"", part["text"]}
    reason = response["status"]
    if response["incomplete_details"]:
        reason = response["incomplete_details"]["reason"]
    usage = response["usage"]
    pieces = tuple(token["token"] for token in part["logprobs"])
    return Told(part["text"], None, pieces, usage["input_tokens"], usage["output_tokens"], reason)


def read_message(messages: list[Any]) -> Told:
    """Anthropic's Messages, whole."""
    message = messages[0]
    text = "".join(block["text"] for block in message["content"])
    usage = message["usage"]
    return Told(text, None, None, _count_prompt(usage), usage["output_tokens"], message["stop_reason"])


def read_message_events(events: list[Any]) -> Told:
    """Anthropic's Messages, streamed."""
    by_type: dict[str, list[Any]] = {}
    for event in events:
        by_type.setdefault(event["type"], []).append(event)
    (final,) = by_type["message_delta"]
    text = "".join(event["delta"]["text"] for event in by_type["content_block_delta"])
    usage = by_type["message_start"][0]["message"]["usage"] | final["usage"]
    return Told(text, None, None, _count_prompt(usage), usage["output_tokens"], final["delta"]["stop_reason"])


def _count_prompt(usage: dict[str, Any]) -> int:
    """What was in memory already is told apart."""
    prompt: int = usage["input_tokens"] + (usage.get("cache_read_input_tokens") or 0)
    return prompt


def read_generated(answers: list[Any]) -> Told:
    """TGI's and LMI's whole answers, in a list or not, and the headers."""
    answer, headers = answers
    answer = answer[0] if isinstance(answer, list) else answer
    details = answer["details"]
    tokens = [token for token in details["tokens"] if not _is_special(token)]
    asked = headers.get("x-prompt-tokens")
    counted = headers.get("x-generated-tokens", details["generated_tokens"])
    assert int(counted) == details["generated_tokens"]
    return _tell_generated(answer, tokens, None if asked is None else int(asked))


def read_generated_tokens(events: list[Any]) -> Told:
    """TGI's and LMI's events and lines."""
    *_, last = events
    tokens = [event["token"] for event in events if not _is_special(event["token"])]
    assert all("generated_text" not in event or event["generated_text"] is None for event in events[:-1])
    assert "".join(token["text"] for token in tokens) == last["generated_text"]
    return _tell_generated(last, tokens, last["details"].get("input_length"))


def _is_special(token: Mapping[str, Any]) -> bool:
    return bool(token.get("special", token.get("special_token", False)))


def _tell_generated(answer: Mapping[str, Any], tokens: list[Any], asked: int | None) -> Told:
    ids, pieces = tuple(token["id"] for token in tokens), tuple(token["text"] for token in tokens)
    details = answer["details"]
    reason = details["finish_reason"]
    # TGI counts the end token too.
    out_token = details["generated_tokens"] - (reason == "eos_token")
    return Told(answer["generated_text"], ids, pieces, asked, out_token, reason)


def read_listed(answers: list[Any]) -> Told:
    """LMI's dynamic batch of one text; it tells the text alone."""
    ((answer,), _) = answers
    return Told(answer["generated_text"])


def read_outputs(lines: list[Any]) -> Told:
    """The same as a stream."""
    return Told("".join(line["outputs"][0] for line in lines))


def read_metered(lines: list[Any]) -> Told:
    """LMI's `3p` and `3p_stream`."""
    bodies = [line["body"] for line in lines if "body" in line]
    text = "".join(body["generation"] for body in bodies)
    (metering,) = [line["metering"] for line in lines if "metering" in line]
    reason = bodies[-1]["stop_reason"]
    return Told(text, None, None, metering["inputTokenCount"], metering["outputTokenCount"], reason)


def read_items(items: list[Any]) -> Told:
    """LMTP's token items. The last one of an answer that ends by itself is the end token."""
    reason = items[-1]["finish_reason"]
    assert [item["finish_reason"] for item in items[:-1]] == [None] * (len(items) - 1)
    ids = tuple(item["token"] for item in items)
    return Told(ids=ids[:-1] if reason == "stop" else ids, reason=reason)


def read_pieces(items: list[Any]) -> Told:
    """LMTP's text items."""
    ids = tuple(token["token"] for item in items for token in item.get("tokens", ()))
    return Told("".join(item["text"] for item in items), ids, reason=items[-1]["finish_reason"])


def read_ollama(lines: list[Any]) -> Told:
    """Ollama's lines, or one body and its headers."""
    lines = [line for line in lines if "done" in line]
    *_, last = lines
    text = "".join(line["message"]["content"] if "message" in line else line["response"] for line in lines)
    pieces = tuple(token["token"] for line in lines for token in line.get("logprobs", ()))
    return Told(text, None, pieces, last["prompt_eval_count"], last["eval_count"], last["done_reason"])


def _add(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
