// What the programs in JavaScript ask through their clients, as asking.py has it, and how they tell what they have seen.

export const HELLO = "Say hello.";
export const WEATHER = "How is the weather in Paris?";
export const WHO = "Who is Anna? Answer in JSON.";
export const NAME = "My name is Anna.";
export const ASK_NAME = "What is my name?";
export const COUNT = "Count to three.";
export const TOO_LONG = "word ".repeat(30_001);

export const getWeather = ({ city }) => `sunny in ${city}`;

/** What a call throws; an answer is no error, and is told as one. */
export async function raised(act) {
  try {
    return { error: "", message: `it takes ${JSON.stringify(await act())} for an answer` };
  } catch (error) {
    return { error: error.name === "Error" ? error.constructor.name : error.name, message: describe(error) };
  }
}

/** Its message, and the code that the body of an answer has. */
function describe(error) {
  const code = error.code ?? error.data?.error?.code;
  return code ? `${code}: ${error.message}` : String(error.message ?? error);
}

/** Ask everything at each door, one after the other, and print what was seen. */
export async function tell(doors) {
  const seen = {};
  for (const [door, features] of Object.entries(doors)) {
    seen[door] = {};
    for (const [name, act] of Object.entries(features)) {
      try {
        seen[door][name] = await act();
      } catch (error) {
        seen[door][name] = { failed: `${error.name}: ${describe(error)}`.slice(0, 1000) };
      }
    }
  }
  console.log(JSON.stringify(seen));
}
