// The client in Node leaves a stream that is to be kept before its head has come, when it is told to on its input.
//
// node leave.mjs URL
import {TgClient} from "@tokengrid/client";

const client = new TgClient({url: process.argv[2], transport: "sse", retries: 0});
const left = client.textCompletion({prompt: "p"}, {keep: "10m"});
left.next().catch(() => {});
await new Promise(resolve => process.stdin.once("data", resolve));
process.stdin.destroy();
const leaving = left.return();
console.log("left");
await leaving;
