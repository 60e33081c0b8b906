// opencode, unmodified, as one command for each question: OpenAI's chat.
//
// node ask_by_opencode.mjs URL TOKEN MODEL

import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";

import { ASK_NAME, COUNT, getWeather, HELLO, NAME, tell, WEATHER } from "./asking.mjs";

const [url, apiKey, model] = process.argv.slice(2);
const options = { baseURL: `${url}/v1`, apiKey };
const models = { [model]: { limit: { context: 100_000, output: 1000 } } };
const provider = { gateway: { npm: "@ai-sdk/openai-compatible", options, models } };
const config = { provider, autoupdate: false, share: "disabled", small_model: `gateway/${model}` };

/** What a run prints, and its end. */
function run(question, ...more) {
  const env = { ...process.env, OPENCODE_CONFIG_CONTENT: JSON.stringify(config), OPENCODE_DISABLE_MODELS_FETCH: "1" };
  const args = ["run", "--model", `gateway/${model}`, ...more];
  const child = spawn(join(import.meta.dirname, "node_modules/.bin/opencode"), args, { env });
  let out = "";
  let err = "";
  child.stdout.on("data", (data) => { out += data; });
  child.stderr.on("data", (data) => { err += data; });
  child.stdin.end(question);
  return new Promise((done) => child.on("close", (status) => done({ status, out: out.trim(), err: err.trim() })));
}

/** What it prints of an error; an orderly end is none. */
async function failed(question) {
  const { status, out, err } = await run(question);
  const said = err.replace(/\x1b\[[0-9;]*m/g, "").split("\n").filter((line) => line.startsWith("Error")).join(" ");
  return { error: said ? "Error" : "", message: `${status} ${said} ${out}`.slice(0, 500) };
}

await tell({
  "OpenAI chat": {
    text: async () => ({ streamed: (await run(HELLO)).out }),
    tools: async () => {
      writeFileSync("weather.txt", getWeather({ city: "Paris" }));
      return { said: (await run(`${WEATHER} See weather.txt.`)).out };
    },
    second_turn: async () => {
      await run(NAME);
      return { history: (await run(ASK_NAME, "--continue")).out };
    },
    too_long: () => failed("word ".repeat(30_001)),
    cut: async () => ({ streamed: await failed(COUNT) }),
  },
});
