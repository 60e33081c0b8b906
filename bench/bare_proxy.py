"""The floor of the embedded pipeline: an aiohttp proxy that reads, decodes and writes anew each event, and no more.

python bench/bare_proxy.py http://127.0.0.1:PORT      prints its port on the first line
"""

import argparse
import asyncio
import json

import aiohttp
import msgspec
import uvloop
from aiohttp import web


class Delta(msgspec.Struct):
    """The only field that is read of a choice."""

    content: str | None = None


class Choice(msgspec.Struct):
    """One choice of a chunk."""

    delta: Delta


class Chunk(msgspec.Struct):
    """One event of the provider."""

    choices: list[Choice]


DECODER = msgspec.json.Decoder(Chunk)


async def proxy(request: web.Request) -> web.StreamResponse:
    """One request in, one upstream request out, event by event back."""
    session: aiohttp.ClientSession = request.app["session"]
    body = await request.read()
    async with session.post(
        request.app["upstream"], data=body, headers={"Content-Type": "application/json"}
    ) as upstream:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        rest = b""
        async for data in upstream.content.iter_any():
            *events, rest = (rest + data).split(b"\n\n")
            out = []
            for event in events:
                if event.startswith(b"data: {"):
                    DECODER.decode(event[6:])
                out.append(event + b"\n\n")
            if out:
                await response.write(b"".join(out))
        await response.write_eof()
        return response


async def serve(upstream: str) -> None:
    """Serve until killed."""
    app = web.Application()
    app["upstream"] = f"{upstream}/v1/chat/completions"
    app["session"] = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
    app.router.add_post("/v1/chat/completions", proxy)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(json.dumps({"port": runner.addresses[0][1]}), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A bare parsing proxy")
    parser.add_argument("upstream")
    uvloop.run(serve(parser.parse_args().upstream))
