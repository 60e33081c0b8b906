"use strict";
const SECONDS = 2;

// The page is made anew at the server, escaped, and put in place of what is shown.
async function update() {
  const state = document.getElementById("state");
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const read = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.querySelector("main").replaceWith(document.adoptNode(read.querySelector("main")));
    state.textContent = `updated every ${SECONDS} s`;
    state.className = "";
  } catch (error) {
    state.textContent = `what is shown is old: ${error.message}`;
    state.className = "bad";
  }
}

setInterval(() => {
  // Whoever copies something must not lose it.
  if (!document.hidden && String(getSelection()) === "") update();
}, 1000 * SECONDS);
