// Conversations <-> the browser's storage: each under a key of its own, so that two tabs do not overwrite each other's.

const PREFIX = "tokengrid.chat.";
const MAX_TITLE_CHARACTERS = 60;

export function makeChat() {
  return {id: crypto.getRandomValues(new Uint32Array(2)).join("-"), time: 0, model: "", temperature: "", system: "", turns: []};
}

export function titleOf(chat) {
  return chat.turns[0]?.content.trim().slice(0, MAX_TITLE_CHARACTERS) || "New conversation";
}

/** All that are kept, the newest first. */
export function listChats() {
  return listKeys().map(read).filter(Boolean).sort((one, other) => other.time - one.time);
}

function listKeys() {
  try {
    return Object.keys(localStorage).filter(key => key.startsWith(PREFIX));
  } catch {
    // The person allows no storage.
    return [];
  }
}

function read(key) {
  try {
    const chat = JSON.parse(localStorage.getItem(key));
    return Array.isArray(chat.turns) && chat.turns.every(({content}) => typeof content === "string") ? chat : null;
  } catch {
    return null;
  }
}

/** Keep it; the oldest others make room. Returns whether there was room. */
export function keepChat(chat) {
  const text = JSON.stringify(chat);
  for (;;) {
    try {
      localStorage.setItem(PREFIX + chat.id, text);
      return true;
    } catch {
      const oldest = listChats().filter(({id}) => id !== chat.id).at(-1);
      if (!oldest) return false;
      dropChat(oldest);
    }
  }
}

export function dropChat({id}) {
  localStorage.removeItem(PREFIX + id);
}

/** The request that answers a conversation's last question. */
export function requestOf(chat) {
  const turns = chat.turns.slice(0, chat.turns.findLastIndex(({role}) => role === "user") + 1);
  const messages = turns.map(({role, content, turn}) => turn ?? {role, content}).filter(({content}) => content.length);
  return {
    ...(chat.system ? {system: chat.system} : {}),
    messages,
    ...(chat.model ? {model: chat.model} : {}),
    ...(chat.temperature === "" ? {} : {sampling: {temperature: Number(chat.temperature)}}),
  };
}
