// LangChain.js, unmodified: OpenAI's chat and the Responses API.
//
// node ask_by_langchain.mjs URL TOKEN MODEL

import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI } from "@langchain/openai";
import { z } from "zod";

import { ASK_NAME, COUNT, getWeather, HELLO, NAME, raised, tell, TOO_LONG, WEATHER, WHO } from "./asking.mjs";

const [url, apiKey, model] = process.argv.slice(2);

/** What is asked of a chat model. */
function features(chat, kept) {
  const stream = async (question) => {
    const pieces = [];
    for await (const piece of await chat.stream(question)) pieces.push(piece.text);
    return pieces;
  };
  return {
    text: async () => ({ whole: (await chat.invoke(HELLO)).text, streamed: await stream(HELLO) }),
    tools: async () => {
      const schema = z.object({ city: z.string() });
      const bound = chat.bindTools([tool(getWeather, { name: "get_weather", description: "The weather.", schema })]);
      const turns = [new HumanMessage(WEATHER)];
      const answer = await bound.invoke(turns);
      const [call] = answer.tool_calls;
      turns.push(answer, new ToolMessage({ content: getWeather(call.args), tool_call_id: call.id }));
      return { called: call.args, said: (await bound.invoke(turns)).text };
    },
    schema: async () => {
      const properties = { name: { type: "string" }, age: { type: "integer" } };
      const shape = { title: "Person", type: "object", properties, required: ["name"] };
      return {
        schema: await chat.withStructuredOutput(shape).invoke(WHO),
        tool: await chat.withStructuredOutput(shape, { method: "functionCalling" }).invoke(WHO),
      };
    },
    second_turn: async () => {
      const first = await chat.invoke(NAME);
      if (kept === "history") {
        return { [kept]: (await chat.invoke([new HumanMessage(NAME), first, new HumanMessage(ASK_NAME)])).text };
      }
      return { [kept]: (await chat.invoke(ASK_NAME, { previous_response_id: first.response_metadata.id })).text };
    },
    too_long: () => raised(() => chat.invoke(TOO_LONG)),
    cut: async () => ({
      streamed: await raised(() => stream(COUNT)),
      whole: await raised(() => chat.invoke(COUNT)),
    }),
  };
}

const options = { model, apiKey, maxRetries: 0, configuration: { baseURL: `${url}/v1` } };
await tell({
  "OpenAI chat": features(new ChatOpenAI(options), "history"),
  Responses: features(new ChatOpenAI({ ...options, useResponsesApi: true }), "previous_response_id"),
});
