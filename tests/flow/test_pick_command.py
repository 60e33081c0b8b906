"""`tg-pick` as a process: what `--check` says of its files, and how it ends."""

import asyncio
import signal
from pathlib import Path

import pytest

from tests.flow.command import ended, out_of, ran, started

PICK = "tg-pick"
ROUTES = """\
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: { name: small }
spec:
  selector: { matchLabels: { app: small } }
  targetPorts: [{ number: 8000 }]
---
apiVersion: inference.x-k8s.io/v1alpha1
kind: LLMRoute
metadata: { name: assistant }
spec:
  parentRefs: [{ name: ai-gw }]
  backendRefs: [{ name: small }]
  adapter: { name: sentiment, priority: 100 }
---
apiVersion: inference.networking.x-k8s.io/v1alpha2
kind: InferenceModelRewrite
metadata: { name: chat }
spec:
  poolRef: { name: small }
  rules:
  - matches: [{ model: { type: Exact, value: chat } }]
    targets: [{ modelRewrite: llama, weight: 1 }]
"""
ENDPOINTS = "endpoints:\n- { name: s0, address: 10.0.0.1, port: '8000', labels: { app: small } }\n"


def write(folder: Path, routes: str = ROUTES, endpoints: str = ENDPOINTS, more: str = "") -> Path:
    (folder / "routes.yaml").write_text(routes, "utf-8")
    (folder / "endpoints.yaml").write_text(endpoints, "utf-8")
    file = folder / "pick.toml"
    file.write_text(f'listen = "127.0.0.1:0"\nresources = ["routes.yaml"]\nendpoint_files = ["endpoints.yaml"]\n{more}')
    return file


async def test_a_check_says_what_would_be_served(tmp_path: Path) -> None:
    file = write(tmp_path)
    done = await ran(PICK, "--config", str(file), "--check", "--listen", "127.0.0.1:9002", "--log-level", "warning")
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        f"ok: {file} picks at 127.0.0.1:9002 by the policy predicted-wait among 1 model server\n"
        "pool small: s0 at 10.0.0.1:8000; base models: any\n"
        "model sentiment: pool small, route assistant, a LoRA adapter, priority 100\n"
        "model chat: pool small, rewritten\n"
    )


async def test_a_check_says_all_that_is_wrong(tmp_path: Path) -> None:
    """An error in one file hides none in another."""
    file = write(
        tmp_path,
        ROUTES.replace("name: small }]", "name: large }]"),
        ENDPOINTS.replace("10.0.0.1", "nobody"),
        'names = ["nobody.invalid:80"]\n',
    )
    done = await ran(PICK, "--config", str(file), "--check")
    assert (done.code, done.out) == (1, "")
    first, second = sorted(done.err.splitlines())
    assert first.startswith(f"{tmp_path}/endpoints.yaml, line 2, column ")
    assert second.startswith(f"{tmp_path}/routes.yaml, line 13, column ")
    assert "there is no InferencePool large" in second


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ('names = ["nobody.invalid:80"]', "nobody.invalid has no address; correct it in names, or add it to your DNS"),
        ('policy = "best"', 'there is no policy "best"; known are least-request'),
        ('[bus]\nurl = "pulsar://127.0.0.1:1"', "pulsar://127.0.0.1:1"),
    ],
)
async def test_a_check_goes_beyond_the_files(tmp_path: Path, more: str, says: str) -> None:
    done = await ran(PICK, "--config", str(write(tmp_path, more=more)), "--check")
    assert (done.code, done.out) == (1, "")
    assert says in done.err.splitlines()[-1] or says in done.err


async def test_wrong_usage() -> None:
    done = await ran(PICK, "--check")
    assert (done.code, done.out) == (2, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_it_drains_and_exits_with_0(tmp_path: Path, number: signal.Signals) -> None:
    async with started(PICK, "--config", str(write(tmp_path)), "--log-level", "error") as process:
        line = await asyncio.wait_for(out_of(process).readline(), 60)
        assert line.startswith(b"picking at 127.0.0.1:")
        process.send_signal(number)
        done = await ended(process)
    assert (done.code, done.err) == (0, "")
