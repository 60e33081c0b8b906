"""A program of somebody who has installed tokengrid-cli; it runs as it is, and passes the strict type checker."""

import asyncio
import sys

from tg_client import Action, Answer, SyncTgClient, TgClient


async def main(url: str) -> None:
    """Ask a model as it streams, and an agent for its steps."""
    async with TgClient(url) as client:
        flow = client.flow("default")
        async with flow.text_completion_stream("Be brief.", "Who are you?") as chunks:
            text = "".join([chunk.response or "" async for chunk in chunks])
        print(text)
        async for event in flow.agent_stream("What is 2 * 21?"):
            match event:
                case Action(tool=tool, arguments=arguments):
                    print(tool, arguments)
                case Answer(content=content) if content:
                    print(content, end="")
                case _:
                    pass


def count_tokens(url: str) -> int:
    """Ask without asyncio."""
    with SyncTgClient(url) as client:
        result = client.flow("default").text_completion("Be brief.", "Who are you?")
    return result.out_token or 0


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
    print(count_tokens(sys.argv[1]) > 0)
