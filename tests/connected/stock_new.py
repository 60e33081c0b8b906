"""The records of the streaming specification after its change, in the stock client's own schema language."""

from pulsar.schema import Array, Boolean, Integer, Map, Record, String

from tests.connected.stock_old import AgentStep, Error


class TextCompletionRequest(Record):
    system = String()
    prompt = String()
    streaming = Boolean()


class TextCompletionResponse(Record):
    error = Error()
    response = String()
    in_token = Integer()
    out_token = Integer()
    model = String()
    end_of_stream = Boolean()


class PromptRequest(Record):
    id = String()
    terms = Map(String())
    streaming = Boolean()


class PromptResponse(Record):
    error = Error()
    text = String()
    object = String()
    end_of_stream = Boolean()


class AgentRequest(Record):
    question = String()
    state = String()
    group = Array(String())
    history = Array(AgentStep())
    user = String()
    streaming = Boolean()


class AgentResponse(Record):
    chunk_type = String()
    content = String()
    end_of_message = Boolean()
    end_of_dialog = Boolean()
