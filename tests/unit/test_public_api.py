"""The faces: what programs may import, and nothing else."""

import inspect
from types import ModuleType
from typing import Literal, get_origin

import pytest

import tg_client
import tg_schema
from tg_schema import TgError

FACES: dict[ModuleType, set[str]] = {
    tg_schema: {
        "AGENT",
        "COMMON_FEATURES",
        "FinishReason",
        "ImagePart",
        "Message",
        "ModelInfo",
        "TextPart",
        "Tool",
        "ToolCall",
        "ToolCallDelta",
        "Usage",
        "PROMPT",
        "TEXT_COMPLETION",
        "AgentRequest",
        "AgentResponse",
        "AgentStep",
        "Error",
        "PromptRequest",
        "PromptResponse",
        "Sampling",
        "ServiceSpec",
        "TextCompletionRequest",
        "TextCompletionResponse",
        "TgError",
        "Token",
        "decode",
        "encode",
        "try_decode",
    },
    tg_client: {
        "Action",
        "AgentDialog",
        "AgentEvent",
        "AgentStep",
        "AgentStream",
        "AgentTrace",
        "Answer",
        "Choice",
        "Flow",
        "Observation",
        "Position",
        "PromptResponse",
        "PromptResult",
        "RecordStream",
        "Sampling",
        "Socket",
        "SyncAgentDialog",
        "SyncAgentStream",
        "SyncFlow",
        "SyncRecordStream",
        "SyncSocket",
        "SyncTgClient",
        "TextCompletionResponse",
        "TextCompletionResult",
        "TgClient",
        "TgError",
        "Thought",
    },
}


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
def test_a_face_is_what_it_promises(face: ModuleType) -> None:
    assert set(face.__all__) == FACES[face]
    assert list(face.__all__) == sorted(face.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name))
    # A literal type has its docstring in the source, where no program reads it.
    shown = [getattr(face, name) for name in face.__all__]
    assert all(inspect.getdoc(each) for each in shown if get_origin(each) is not Literal)
    assert len(inspect.getsource(face).splitlines()) <= 70


def test_the_sync_twin_has_every_call_of_the_async_one() -> None:
    for twin, original in (
        (tg_client.SyncFlow, tg_client.Flow),
        (tg_client.SyncSocket, tg_client.Socket),
        (tg_client.SyncTgClient, tg_client.TgClient),
    ):
        calls = {name: call for name, call in vars(original).items() if not name.startswith("_") and name != "records"}
        for name, call in calls.items():
            ours = inspect.signature(getattr(twin, name)).parameters
            assert {key: value.default for key, value in ours.items()} == {
                key: value.default for key, value in inspect.signature(call).parameters.items()
            }, name


def test_the_errors_that_programs_catch() -> None:
    kinds = TgError.__subclasses__()
    assert len({kind.type for kind in kinds}) == len(kinds) == 17
    assert all(400 <= kind.status < 600 for kind in kinds)
