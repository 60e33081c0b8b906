"""Files of `tg-pick` with a mistake: each refusal says where it is and what would be right."""

import socket
from pathlib import Path

import pytest
from aiohttp import ClientSession

from tests.flow.command import ran
from tg_picker.extproc.pick_config import read_pick_config
from tg_picker.extproc.picker_process import run_picker
from tg_schema.errors import BadRequest

TABLE = """\
[[pools]]
name = 'a'
endpoints = ['10.0.0.1:80']
models = ['m']
"""
SERVER = 'endpoints = ["10.0.0.1:8000"]\n'


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 0, "set endpoints, names, endpoint_files or pools"),
        ("endpoints = 'x'", 1, "a list"),
        (SERVER + "policy = 'sticky'", 2, "known are least-request, predicted-wait, round-robin, and any"),
        (SERVER + "admission = 'never'", 2, "always"),
        (SERVER + "listen = '0.0.0.0'", 2, "host:port"),
        (SERVER + "listen = 7", 2, "must be text"),
        (SERVER + "fallbacks = 3", 2, "<= 2"),
        (SERVER + "[scrape]\ninterval = 0", 3, ">= 0.005"),
        (SERVER + "[scrape]\npath = 'metrics'", 3, "must begin with a slash, as /metrics"),
        (SERVER + "[scrape]\npath = '/a b'", 3, "may have no blanks; write %20 for one"),
        (SERVER + '[scrape]\npath = "/a\\r\\n"', 3, "may have no blanks"),
        (SERVER + "cluster = 'ORIGINAL_DST'", 2, '"original_dst"'),
        (SERVER + "[waiting]\nmax_waiting = -1", 3, ">= 0"),
        (SERVER + "[waiting]\nmax_wait = 1", 3, 'did you mean "max_'),
        (
            SERVER + "[waiting]\nmax_waiting = 5\n[[waiting.bands]]\npriority = 1\nmax_waiting = 6",
            6,
            "above the queue's 5",
        ),
        (SERVER + "[[waiting.bands]]\npriority = 1\n[[waiting.bands]]\npriority = 1", 5, "keep one"),
        (SERVER + "sources = []", 2, 'did you mean "resources"'),
        ("endpoints = [\n'10.0.0.1:8000',\n'http://10.0.0.1:8000']", 3, "without a scheme"),
        ("endpoints = ['gpu-1:8000']", 1, "move the name gpu-1 to `names`"),
        (SERVER + "names = ['gpu']", 2, "must be HOST:PORT"),
        ("endpoints = ['[::1]:80', '10.0.0.1:80', '[0::1]:80']", 1, 'endpoints: "[0::1]:80" is there twice; keep one'),
        (SERVER + "names = ['gpu:80', 'GPU:80']", 2, 'names: "GPU:80" is there twice'),
        ("[[pools]]\nname = 'a'", 1, "no server"),
        ("[[pools]]\nname = 'a'\nendpoints = ['10.0.0.1:80']", 1, "name its models or adapters"),
        (TABLE + "names = ['gpu']", 5, "must be HOST:PORT"),
        (TABLE.replace("['", "['10.0.0.1:80', '", 1), 3, '"10.0.0.1:80" is there twice'),
        (TABLE + TABLE, 6, 'two pools "a"'),
        (TABLE + TABLE.replace("'a'", "'b'"), 5, '"m" leads to two pools, a and b'),
        (TABLE.replace("10.0.0.1", "gpu-1"), 3, "move the name gpu-1 to `names`"),
        (TABLE + "[pools.objective]\nfirst_token = 0", 6, "> 0"),
        (TABLE + "priorities = 1", 5, 'did you mean "priority"'),
        (SERVER + TABLE, 1, "endpoints cannot stand beside pools"),
        (SERVER + "[bus]\nurl = 'memory://'", 3, "pulsar://host:port"),
        (SERVER + "[bus]\nurls = 'pulsar://a:1'", 3, "did you mean"),
    ],
)
def test_a_mistake(tmp_path: Path, text: str, line: int, words: str) -> None:
    file = tmp_path / "pick.toml"
    file.write_text(text, "utf-8")
    with pytest.raises(BadRequest) as caught:
        read_pick_config(file)
    where, _, sentence = caught.value.message.partition(": ")
    assert where == (f"{file}, line {line}" if line else str(file))
    assert words in sentence


async def test_an_address_that_is_taken_is_told_in_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "pick.toml"
    file.write_text('endpoints = ["127.0.0.1:9"]', "utf-8")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = await ran("tg-pick", "--config", str(file), "--listen", address, "--log-level", "error")
    assert (done.code, done.out) == (1, "")
    assert done.err == f"tg-pick: cannot listen on {address}; take another address, or stop what listens there\n"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"listen": "127.0.0.1:99999"}, "listen must be host:port, for instance 0.0.0.0:9002"),
        ({"listen": "gpu"}, "listen must be host:port"),
        ({"http": "127.0.0.1:99999"}, "http must be host:port, for instance 127.0.0.1:9090"),
        ({"bus": "memory://"}, "pulsar://host:port"),
    ],
)
async def test_what_the_command_line_says_is_checked_like_the_file(
    tmp_path: Path, given: dict[str, str], words: str
) -> None:
    file = tmp_path / "pick.toml"
    file.write_text(SERVER, "utf-8")
    with pytest.raises(BadRequest, match=words):
        async with run_picker(file, **{"listen": "127.0.0.1:0", **given}):
            pass


@pytest.mark.parametrize(
    ("endpoints", "ready"), [('endpoints = ["127.0.0.1:9"]', 200), ('endpoint_files = ["e.yaml"]', 503)]
)
async def test_the_page_says_whether_there_are_servers_and_knows_its_own_names(
    tmp_path: Path, endpoints: str, ready: int
) -> None:
    file = tmp_path / "pick.toml"
    (tmp_path / "e.yaml").write_text("endpoints: []\n", "utf-8")
    file.write_text(f'{endpoints}\nhosts = ["picker"]\n', "utf-8")
    async with run_picker(file, "127.0.0.1:0", "127.0.0.1:0") as said, ClientSession() as http:
        page = said.partition("; see ")[2]
        for path, host, status in (("ready", "picker", ready), ("health", "picker", 200), ("metrics", "other", 403)):
            url = page.replace("instances", path)
            async with http.get(url, headers={"Host": host}) as answer:
                assert answer.status == status
