// Questions, as native dialogs: the focus stays inside, Escape closes.
import { h } from "./dom.js";

let number = 0;

/**
 * Show a dialog until one of its buttons is pressed.
 * @param {string} title
 * @param {(Node | string)[]} content
 * @param {{text: string, value: any, kind?: string}[]} buttons the last one is the default
 * @returns {Promise<any>} the value of the button; null where the dialog was closed
 */
export function ask(title, content, buttons) {
  number += 1;
  const heading = h("h2", { id: `dialog-${number}` }, title);
  const dialog = h("dialog", { "aria-labelledby": heading.id });
  return new Promise((resolve) => {
    let answer = null;
    const row = h("div", { class: "row end" });
    for (const [i, { text, value, kind = "" }] of buttons.entries()) {
      const type = i === buttons.length - 1 ? "submit" : "button";
      row.append(h("button", { type, class: kind, onclick: (event) => {
        const form = event.target.closest("form");
        if (type === "submit" && !form.reportValidity()) return event.preventDefault();
        event.preventDefault();
        answer = value;
        return dialog.close();
      } }, text));
    }
    dialog.append(h("form", { method: "dialog" }, heading, ...content, row));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(answer);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Ask whether to do something that cannot be undone. */
export function confirmFinal(title, text, verb) {
  return ask(title, [h("p", {}, text)], [
    { text: "Cancel", value: false },
    { text: verb, value: true, kind: "primary danger" },
  ]);
}

/** Ask for the token of the service. */
export async function askToken(wasWrong) {
  const input = h("input", { id: "token", type: "password", required: true, autocomplete: "current-password" });
  const answer = await ask("Token", [
    h("p", { role: wasWrong ? "alert" : null }, wasWrong
      ? "That is not the token of this service. Try again."
      : "This service needs a token. It is in the file that dkvb serve was given as --token-file."),
    h("label", { for: "token" }, "Token"),
    input,
    h("p", { class: "quiet small" }, "It is kept until this tab is closed."),
  ], [{ text: "Continue", value: true, kind: "primary" }]);
  return answer ? input.value.trim() : null;
}

const SHORTCUTS = [
  ["1 … 9", "teach the selection as this class, or correct it"],
  ["Enter", "accept what was predicted"],
  ["L", "type a label"],
  ["Arrows", "move between items; with Shift, select more"],
  ["Space", "select or unselect"],
  ["Ctrl A", "select all"],
  ["Escape", "clear the selection"],
  ["Delete", "remove the selection from this page (not from the model)"],
  ["U or Ctrl Z", "undo the last learn, relabel, rename or merge"],
  ["?", "this list"],
];

/** Show what keys do. */
export function showShortcuts() {
  const list = h("dl", { class: "shortcuts" });
  for (const [key, text] of SHORTCUTS) list.append(h("dt", {}, h("kbd", {}, key)), h("dd", {}, text));
  return ask("Keyboard", [list], [{ text: "Close", value: null }]);
}
