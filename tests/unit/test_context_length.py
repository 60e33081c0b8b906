"""A prompt that is longer than the model's context: what servers say, and what clients of each door read."""

import msgspec
import pytest

from tg_base.llm import event_error, status_error
from tg_doors.mlc.failures import refuse as refuse_mlc
from tg_doors.tgi.failures import encode_failure as encode_tgi
from tg_gateway.dialects.anthropic.failures import encode_failure_event as encode_anthropic
from tg_gateway.dialects.chat.failures import encode_failure as encode_openai
from tg_gateway.dialects.native.failures import encode_refusal
from tg_gateway.dialects.ollama.failures import encode_failure as encode_ollama
from tg_gateway.dialects.responses.response_draft import find_code
from tg_schema import TgError
from tg_schema.errors import BadRequest, ContextLengthExceeded, RateLimited

TOO_LONG = ContextLengthExceeded.of_counts(5000, 4096)
UNKNOWN = ContextLengthExceeded.of_counts(None, None)


@pytest.mark.parametrize(
    ("said", "tokens", "maximum"),
    [
        # OpenAI, and what repeats its words
        (
            "This model's maximum context length is 4096 tokens. However, your messages resulted in 5000 tokens.",
            5000,
            4096,
        ),
        (
            (
                "This model's maximum context length is 4097 tokens, however you requested 5000 tokens (4900 in your "
                "prompt; 100 for the completion). Please reduce your prompt; or completion length."
            ),
            5000,
            4097,
        ),
        (
            "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300007 tokens.",
            300007,
            272000,
        ),
        ("Your input exceeds the context window of this model. Please adjust your input and try again.", None, None),
        # vLLM
        (
            "This model's maximum context length is 2048 tokens. However, your request has 3000 input tokens.",
            3000,
            2048,
        ),
        (
            (
                "'max_tokens' or 'max_completion_tokens' is too large: 4000. This model's maximum context length is "
                "4096 tokens and your request has 3500 input tokens (4000 > 4096 - 3500)."
            ),
            None,
            4096,
        ),
        ("The decoder prompt (length 5000) is longer than the maximum model length of 4096.", 5000, 4096),
        # SGLang
        ("The input (5000 tokens) is longer than the model's context length (4096 tokens).", 5000, 4096),
        # Anthropic
        ("prompt is too long: 210000 tokens > 200000 maximum", 210000, 200000),
        ("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease it", None, 200000),
        # Gemini
        (
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            1200000,
            1048576,
        ),
        ("The input token count exceeds the maximum number of tokens allowed 1048576.", None, None),
        # Bedrock
        ("Input is too long for requested model.", None, None),
        ("Too many input tokens. Max input tokens: 8192, request input token count: 9000", 9000, 8192),
        # Mistral
        (
            "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
            40000,
            32768,
        ),
        # Cohere
        (
            (
                "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000. Try using a "
                "shorter prompt, or enabling prompt truncating."
            ),
            5000,
            4081,
        ),
        ("too many tokens: size limit exceeded by 11 tokens.", None, None),
        # TGI
        ("Input validation error: `inputs` must have less than 1024 tokens. Given: 1500", 1500, 1024),
        (
            (
                "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 1500 `inputs` "
                "tokens and 600 `max_new_tokens`"
            ),
            None,
            2048,
        ),
        # llama.cpp's server, and Ollama
        ("request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it", 5000, 4096),
        ("the request exceeds the available context size, try increasing it", None, None),
        ("the input length exceeds the context length", None, None),
        # LM Studio
        (
            (
                "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with "
                "context length of only 4096 tokens, which is not enough."
            ),
            5000,
            4096,
        ),
    ],
)
def test_each_server_s_words_are_understood(said: str, tokens: int | None, maximum: int | None) -> None:
    body = msgspec.json.encode({"error": {"message": said}}).decode()
    for error in (status_error(400, text=body), event_error(None, text=said)):
        assert type(error) is ContextLengthExceeded
        assert (error.tokens, error.maximum) == (tokens, maximum)
        # Whatever else the server said stays there: it may have a prompt in it.
        assert error.message == ContextLengthExceeded.of_counts(tokens, maximum).message


def test_a_server_may_escape_what_needs_no_escape() -> None:
    error = status_error(400, text=r'{"message":"prompt is too long: 210000 tokens \u003e 200000 maximum"}')
    assert isinstance(error, ContextLengthExceeded)
    assert (error.tokens, error.maximum) == (210000, 200000)


@pytest.mark.parametrize("code", ["context_length_exceeded", "exceed_context_size_error"])
def test_a_code_is_enough(code: str) -> None:
    for error in (status_error(400, code), event_error(code)):
        assert type(error) is ContextLengthExceeded


@pytest.mark.parametrize(
    "error",
    [
        status_error(400, text="max_tokens is too large: 100000. This model supports at most 4096 completion tokens."),
        status_error(400, text="string too long"),
        status_error(429, text="prompt is too long: 5 tokens > 4 maximum"),
    ],
)
def test_other_refusals_stay_what_they_are(error: TgError) -> None:
    assert type(error) in {BadRequest, RateLimited}


def test_the_counts_travel() -> None:
    for error in (TOO_LONG, UNKNOWN):
        again = TgError.of(error.record)
        assert type(again) is ContextLengthExceeded
        assert (again.message, again.tokens, again.maximum) == (error.message, error.tokens, error.maximum)
    assert (TOO_LONG.status, TOO_LONG.retryable) == (400, False)


SENTENCE = (
    "This model's maximum context length is 4096 tokens. However, the prompt is too long: it has 5000 tokens. "
    "Please reduce the length of the messages."
)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (
            encode_openai(TOO_LONG),
            {
                "error": {
                    "message": SENTENCE,
                    "type": "invalid_request_error",
                    "param": None,
                    "code": "context_length_exceeded",
                }
            },
        ),
        (
            encode_anthropic(TOO_LONG, "r").partition(b"data: ")[2],
            {
                "type": "error",
                "error": {
                    "type": "invalid_request_error",
                    "message": "prompt is too long: 5000 tokens > 4096 maximum",
                },
                "request_id": "r",
            },
        ),
        (
            encode_tgi(TOO_LONG),
            {
                "error": "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000",
                "error_type": "validation",
            },
        ),
        (encode_ollama(TOO_LONG), {"error": SENTENCE}),
        (
            encode_refusal(TOO_LONG),
            {"error": {"type": "context-length-exceeded", "message": SENTENCE, "tokens": 5000, "maximum": 4096}},
        ),
        (encode_refusal(UNKNOWN), {"error": {"type": "context-length-exceeded", "message": UNKNOWN.message}}),
    ],
)
def test_each_door_says_it_in_its_words(written: bytes, expected: object) -> None:
    assert msgspec.json.decode(written) == expected


def test_mlc_says_it_in_its_words() -> None:
    answer = refuse_mlc(TOO_LONG, 400, known_path=True)
    said = msgspec.json.decode(msgspec.json.decode(answer.body))
    assert said["message"].startswith("Request prompt has 5000 tokens in total, larger than")


def test_a_response_that_failed_has_the_code() -> None:
    assert find_code(TOO_LONG) == "context_length_exceeded"


@pytest.mark.parametrize("words", ["This model's maximum context length is", "prompt is too long", "reduce the length"])
def test_without_counts_the_words_are_there_by_which_clients_know_it(words: str) -> None:
    # litellm, Claude Code and LangChain, opencode
    assert words.lower() in UNKNOWN.message.lower()
    assert words.lower() in encode_anthropic(UNKNOWN, "r").decode().lower()
    assert b'"message":"prompt is too long: ' in encode_anthropic(UNKNOWN, "r")
