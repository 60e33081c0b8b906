"""A program of somebody who has installed tokengrid-cli; it runs as it is, and passes the strict type checkers."""

import asyncio
import sys

from tg_client import Action, AgentStep, Answer, Flow, Sampling, SyncTgClient, TextCompletionResult, TgClient, TgError
from tg_schema import ImagePart, Message, TextPart, Tool

PARAMETERS = {"type": "object", "properties": {"expression": {"type": "string"}}}


def tell(error: TgError, seconds: float) -> None:
    """Tell of a wait."""
    print(f"{error.message}: waiting {seconds:.1f} s", file=sys.stderr)


async def converse(flow: Flow) -> TextCompletionResult:
    """Two turns, with lists wherever there are several of something."""
    turns = [Message("system", "Be brief."), Message("user", [TextPart("Who are"), TextPart(" you?")])]
    sampling = Sampling(temperature=0, max_tokens=100, stop=sys.argv[2:])
    result = await flow.text_completion(messages=turns, sampling=sampling, timeout=60)
    turns += [result.turn, Message("user", "And who else?")]
    return await flow.text_completion(messages=turns, tools=[Tool("calculator", "Calculates.", PARAMETERS)])


async def look(flow: Flow, picture: str) -> str | None:
    """Ask about a picture; None where the model sees none."""
    turn = Message("user", [TextPart("What is this?"), ImagePart(data=picture)])
    try:
        return (await flow.text_completion(messages=[turn])).text
    except TgError as error:
        return None if not error.retryable else str(error.retry_after)


async def main(url: str) -> None:
    """Ask a model as it streams, and an agent for its steps."""
    client = TgClient(url, timeout=120, retries=5, on_retry=tell)
    try:
        flow = client.flow("default")
        async with flow.text_completion_stream("Be brief.", "Who are you?") as chunks:
            text = "".join([chunk.response or "" async for chunk in chunks])
        async with client.socket() as socket:
            answers = await asyncio.gather(converse(socket.flow()), flow.text_completion("Be brief.", "Who are you?"))
        same = {answer.text for answer in answers} == {text}
        print(text, same, [model.model for model in await client.models()], await look(flow, "iVBORw0KGgo="))
        steps: list[AgentStep] = []
        async for event in flow.agent_stream("What is 2 * 21?", group=["default"], history=steps):
            match event:
                case Action(tool=tool, arguments=arguments):
                    print(tool, arguments)
                case Answer(content=content) if content:
                    print(content, end="")
                case _:
                    pass
    finally:
        await client.close()


def count_tokens(url: str) -> int:
    """Ask without asyncio."""
    with SyncTgClient(url, retries=0) as client:
        result = client.flow("default").text_completion("Be brief.", "Who are you?")
    return result.out_token or 0


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
    print(count_tokens(sys.argv[1]) > 0)
