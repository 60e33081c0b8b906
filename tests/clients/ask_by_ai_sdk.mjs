// Vercel's AI SDK, unmodified: the Responses API, OpenAI's chat, and chat by the provider for compatible servers.
//
// node ask_by_ai_sdk.mjs URL TOKEN MODEL

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

import { ASK_NAME, COUNT, getWeather, HELLO, NAME, raised, tell, TOO_LONG, WEATHER, WHO } from "./asking.mjs";

const [url, apiKey, name] = process.argv.slice(2);
const baseURL = `${url}/v1`;

/** What is asked of a model; `loose` lets a schema have what is not required. */
function features(model, kept, loose) {
  const ask = (more) => generateText({ model, maxRetries: 0, ...more });
  const stream = async (prompt) => {
    let failed;
    const pieces = [];
    const onError = ({ error }) => { failed ??= error; };
    for await (const piece of streamText({ model, prompt, maxRetries: 0, onError }).textStream) pieces.push(piece);
    if (failed) throw failed;
    return pieces;
  };
  return {
    text: async () => ({ whole: (await ask({ prompt: HELLO })).text, streamed: await stream(HELLO) }),
    tools: async () => {
      const called = [];
      const weather = tool({
        description: "Get the weather of a city.",
        inputSchema: z.object({ city: z.string() }),
        execute: async (input) => { called.push(input); return getWeather(input); },
      });
      const said = await ask({ prompt: WEATHER, tools: { weather }, stopWhen: stepCountIs(3) });
      return { called: called[0], said: said.text };
    },
    schema: async () => {
      const output = Output.object({ schema: z.object({ name: z.string(), age: z.number().nullish() }) });
      return { schema: (await ask({ prompt: WHO, output, providerOptions: loose })).output };
    },
    second_turn: async () => {
      const first = await ask({ prompt: NAME });
      const turns = [{ role: "user", content: NAME }, ...first.response.messages, { role: "user", content: ASK_NAME }];
      // At the Responses API the history refers to items by their ids.
      const said = (await ask({ messages: turns })).text;
      if (kept === "history") return { history: said };
      const providerOptions = { openai: { previousResponseId: first.providerMetadata.openai.responseId } };
      return { history: said, previous_response_id: (await ask({ prompt: ASK_NAME, providerOptions })).text };
    },
    too_long: () => raised(() => ask({ prompt: TOO_LONG })),
    cut: async () => ({ streamed: await raised(() => stream(COUNT)), whole: await raised(() => ask({ prompt: COUNT })) }),
  };
}

const openai = createOpenAI({ baseURL, apiKey });
const compatible = createOpenAICompatible({ name: "gateway", baseURL, apiKey, supportsStructuredOutputs: true });
const loose = { openai: { strictJsonSchema: false } };
await tell({
  Responses: features(openai(name), "previous_response_id", loose),
  "OpenAI chat": features(openai.chat(name), "history", loose),
  "OpenAI chat, compatible": features(compatible(name), "history", { gateway: { strictJsonSchema: false } }),
});
