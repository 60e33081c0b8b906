"""A GENERATE whose mask is cut out of its JSON: the same fields and the same mask as where all of it is read."""

import json

import pytest

from tg_doors.lmtp.mask import MIN_PACKED_BYTES
from tg_doors.lmtp.request import GenerateBody, read_generate
from tg_schema import decode
from tg_schema.errors import BadRequest

LARGE = json.dumps({str(number): 100 for number in range(3000)})
TEXT = json.dumps("A" * MIN_PACKED_BYTES)
FILLER = f'"filler":"{"x" * MIN_PACKED_BYTES}"'
ESCAPED = "A\\/" * MIN_PACKED_BYTES
HEAD = '"stream_id":1,"model":"m","prompt":[1]'


@pytest.mark.parametrize(
    "fields",
    [
        f'{HEAD},"logit_bias":{LARGE}',
        f'"logit_bias" :\n {LARGE} ,{HEAD},"max_tokens":7',
        f'{HEAD},"logit_bias":{TEXT},"max_tokens":7',
        f'{HEAD},"logit_bias":"{ESCAPED}","max_tokens":7',
        f'{HEAD},"logit_bias":null,{FILLER}',
        f"{HEAD},{FILLER}",
        # Of two, the last one counts; the cut is made at the first.
        f'{HEAD},"logit_bias":{LARGE},"logit_bias":null',
        f'{HEAD},"logit_bias":{LARGE},"logit_bias":{{"5":7}}',
        f'{HEAD},"logit_bias":{LARGE},"logit_bias":"the mask is apart"',
        # Not the message's own field.
        f'{HEAD},"other":{{"logit_bias":{LARGE}}}',
        f'{HEAD},"other":{{"logit_bias":{LARGE}}},"logit_bias":{{"5":7}}',
        f'{HEAD},"other":[{{"logit_bias":{LARGE}}}],"logit_bias":"the mask is apart"',
        f'{HEAD},"other\\"logit_bias":{LARGE}',
        f'{HEAD},{FILLER},"other":"\\"logit_bias\\": {{\\"1\\": 2}}","logit_bias":{{"5":7}}',
        # Masks that end later than they seem to.
        f'{HEAD},"logit_bias":{{"a":{LARGE},"b":2}}',
        f'{HEAD},"logit_bias":{{"}}":1,"max_tokens":5}},{FILLER}',
        f'{HEAD},"logit_bias":{{"\\"}}":1,"\\"max_tokens":5}},{FILLER}',
        f'{HEAD},"logit_bias":"a\\",\\"max_tokens\\":5,\\"",{FILLER}',
    ],
)
def test_the_same_as_all_of_it_at_once(fields: str) -> None:
    payload = f"{{{fields}}}".encode()
    whole = decode(GenerateBody, payload)
    body, mask = read_generate(payload)
    assert mask == bytes(whole.logit_bias)
    assert (body.stream_id, body.prompt, body.max_tokens) == (1, (1,), whole.max_tokens)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (f'"stream_id":"1","model":"m","prompt":[1],"logit_bias":{LARGE}', "stream_id"),
        (f'{HEAD},"logit_bias":{LARGE},"max_tokens":0', "max_tokens"),
        (f'{HEAD},"logit_bias":{LARGE}}}', "not valid JSON"),
        (f'{HEAD},"logit_bias":{LARGE[:-1]}', "not valid JSON"),
        (f'{HEAD},"logit_bias":{TEXT[:-1]}', "not valid JSON"),
        (f'{HEAD},"logit_bias":{LARGE},\xff', "not valid JSON"),
    ],
)
def test_what_is_no_generate(fields: str, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        read_generate(f"{{{fields}}}".encode("latin-1"))
