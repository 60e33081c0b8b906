// A conversation's request -> the same as a command of curl, a program in Python, and a command of Tokengrid.
import {make, makeCopyButton} from "./dom.js";

const quote = text => `'${text.replaceAll("'", "'\\''")}'`;
/** JSON's texts are Python's too. */
const literal = JSON.stringify;

export function makeCurl(url, request, keyed) {
  const key = keyed ? ' \\\n  -H "Authorization: Bearer $TOKENGRID_TOKEN"' : "";
  const body = quote(JSON.stringify({...request, streaming: true}));
  return `curl -N ${quote(`${url}api/v1/text-completion`)}${key} \\\n  -d ${body}`;
}

export function makePython(url, {system = "", messages, model, sampling}, keyed) {
  const isPlain = ({content, tool_calls}) => typeof content === "string" && !tool_calls;
  const turns = messages.map(turn => isPlain(turn) ? `    Message(${literal(turn.role)}, ${literal(turn.content)}),`
    : `    decode(Message, ${literal(JSON.stringify(turn))}),`);
  const options = [
    "messages=TURNS", ...(model ? [`model=${literal(model)}`] : []),
    ...(sampling ? [`sampling=Sampling(temperature=${sampling.temperature})`] : []),
  ];
  return [
    "import asyncio", "", `from tg_client import ${sampling ? "Sampling, " : ""}TgClient`,
    `from tg_schema import Message${messages.every(isPlain) ? "" : ", decode"}`, "",
    "TURNS = [", ...turns, "]", "", "", "async def main() -> None:",
    ...(keyed ? ["    # The key is taken from TOKENGRID_TOKEN."] : []),
    `    async with TgClient(${literal(url)}) as client:`,
    `        asked = client.flow(None).text_completion_stream(${literal(system)}, "", ${options.join(", ")})`,
    "        async with asked as chunks:", "            async for chunk in chunks:",
    '                print(chunk.response or "", end="", flush=True)', "", "", "asyncio.run(main())",
  ].join("\n");
}

export function makeCommand(url, {system = "", messages, model, sampling}) {
  const earlier = messages.slice(0, -1);
  const history = earlier.length ? `printf %s ${quote(JSON.stringify(earlier))} > history.json\n` : "";
  const options = [
    `-u ${quote(url)}`, ...(model ? [`-m ${quote(model)}`] : []),
    ...(sampling ? [`--temperature ${sampling.temperature}`] : []), ...(earlier.length ? ["--history history.json"] : []),
  ];
  return `${history}tg-invoke-llm ${options.join(" ")} -- ${quote(system)} ${quote(messages.at(-1).content)}`;
}

export function showRequests(place, url, request, keyed) {
  const shown = {
    curl: makeCurl(url, request, keyed),
    Python: makePython(url, request, keyed),
    "tg-invoke-llm": makeCommand(url, request),
  };
  place.replaceChildren(...Object.entries(shown).flatMap(([name, text]) => [
    make("h3", {}, name, " ", makeCopyButton(() => text)),
    make("pre", {tabIndex: 0, textContent: text}),
  ]));
  if (keyed) place.prepend(make("p", {textContent: "They take the key from the variable TOKENGRID_TOKEN."}));
}
