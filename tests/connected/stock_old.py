"""The records of the streaming specification before its change, in the stock client's own schema language."""

from pulsar.schema import Array, Integer, Map, Record, String


class Error(Record):
    type = String()
    message = String()


class TextCompletionRequest(Record):
    system = String()
    prompt = String()


class TextCompletionResponse(Record):
    error = Error()
    response = String()
    in_token = Integer()
    out_token = Integer()
    model = String()


class PromptRequest(Record):
    id = String()
    terms = Map(String())


class PromptResponse(Record):
    error = Error()
    text = String()
    object = String()


class AgentStep(Record):
    thought = String()
    action = String()
    arguments = Map(String())
    observation = String()
    user = String()


class AgentRequest(Record):
    question = String()
    state = String()
    group = Array(String())
    history = Array(AgentStep())
    user = String()


class AgentResponse(Record):
    answer = String()
    error = Error()
    thought = String()
    observation = String()
