// Elements of the page. Text is set as text, never as HTML.

export const byId = id => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/** A button that copies what `text` returns, and says so. */
export function makeCopyButton(text) {
  const button = make("button", {type: "button", textContent: "Copy"});
  button.addEventListener("click", async () => {
    // Only a page of HTTPS or of this machine may write to the clipboard.
    const done = await navigator.clipboard?.writeText(text()).then(() => true, () => false);
    button.textContent = done ? "Copied" : "Not allowed here";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  return button;
}
