"""What a mask of half a vocabulary costs over LMTP, at the door and at the processor of llama-cpp.

    python -m bench.masks

Process CPU milliseconds, medians in one process. The door: from the message to what is published. The processor: from
what is published to the settings of the sampler. A mapping is how processors of an older version get it.
"""

import base64
import json
import random
import statistics
import time
from array import array
from collections.abc import Callable, Mapping
from typing import Any, Final

from tg_base.llm.request_plan import check_completion
from tg_base.protocol import EncodedRequest, Route
from tg_base.runtime import finish, is_costly
from tg_doors.lmtp.buffers import Buffers
from tg_doors.lmtp.mask import read_fields
from tg_doors.lmtp.messages import split_message
from tg_doors.lmtp.prompt import read_prompt
from tg_doors.lmtp.request import make_generate, read_generate
from tg_gateway.dialects import FoundModel
from tg_llama.core.sampler_settings import SamplerSettings
from tg_llama.options import LlamaCppOptions
from tg_llama.provider import LlamaCpp
from tg_schema import TEXT_COMPLETION, Sampling, TextCompletionRequest, decode

VOCABULARY: Final = 160_000
RUNS: Final = 15
ROUTE: Final = Route("default", TEXT_COMPLETION, "request", "response")
FEATURES: Final = LlamaCpp.find_features(LlamaCppOptions())


def pass_door(message: bytes, features: frozenset[str]) -> bytes:
    """The record of a GENERATE, as it travels."""
    body, mask = read_generate(split_message(message)[1])
    field: Mapping[str, Any] = finish(read_fields(mask, features))
    prompt = read_prompt(body.prompt, body.mode, Buffers())
    request = make_generate(body, prompt, FoundModel(ROUTE, "m", None, features), field)
    return EncodedRequest.of(TEXT_COMPLETION, request).body


def take_request(body: bytes) -> SamplerSettings:
    """What llama.cpp samples with."""
    # Part of the cost: a processor checks each body like this, and hands one with a mapping to a worker process.
    is_costly(body)
    request = decode(TextCompletionRequest, body)
    check_completion(request)
    settings = finish(SamplerSettings.of(request.sampling or Sampling(), temperature=0.8, top_k=40, top_p=0.95))
    assert settings.logit_bias is not None
    settings.logit_bias.check(VOCABULARY)
    return settings


def measure(run: Callable[[], object]) -> float:
    """Milliseconds of one run."""
    spent: list[float] = []
    for _ in range(RUNS):
        began = time.process_time()
        run()
        spent.append((time.process_time() - began) * 1000)
    return statistics.median(spent)


def make_message(mask: object) -> bytes:
    """A GENERATE with this mask."""
    return b"GENERATE " + json.dumps({"model": "m", "prompt": [1], "stream_id": 1, "logit_bias": mask}).encode()


def main() -> None:
    """Print a row for each form of the mask."""
    biases = random.Random(1)
    whole = {str(token): 100 for token in range(0, VOCABULARY, 2)}
    mixed = {token: round(biases.uniform(-100, 100), 4) for token in range(0, VOCABULARY, 3)}
    floats = array("f", (biases.uniform(-100, 100) for _ in range(VOCABULARY)))
    print("| mask | message | door | processor | bytes between |\n|---|---|---|---|---|")
    for name, mask, features in (
        ("whole numbers, packed", whole, FEATURES),
        ("whole numbers, as a mapping", whole, FEATURES - {"packed_bias"}),
        ("decimals, packed", mixed, FEATURES),
        ("decimals, as a mapping", mixed, FEATURES - {"packed_floats"}),
        ("32-bit floats, all tokens", base64.b64encode(floats.tobytes()).decode(), FEATURES),
    ):
        message = make_message(mask)
        body = pass_door(message, features)
        door, processor = measure(lambda: pass_door(message, features)), measure(lambda: take_request(body))  # noqa: B023
        print(f"| {name} | {len(message):,} | {door:.1f} ms | {processor:.1f} ms | {len(body):,} |")


if __name__ == "__main__":
    main()
