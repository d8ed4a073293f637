// What the page says: to the eye as a toast, to a screen reader through a live region.
import { byId, h, icon } from "./dom.js";

const SECONDS = 6;

/** Say what happened. */
export function say(text) {
  byId("status").textContent = text;
  toast(text, "", SECONDS);
}

/** Say it to screen readers alone, where the eye sees it anyway. */
export function announce(text) {
  byId("status").textContent = text;
}

/** Say what went wrong; it stays until it is closed. */
export function complain(error) {
  toast(error.message ?? String(error), "wrong", 30);
}

function toast(text, kind, seconds) {
  const close = h("button", { class: "plain only-icon", "aria-label": "Close this message" }, icon("close"));
  const one = h("div", { class: `toast ${kind}`, role: kind ? "alert" : null }, h("p", {}, text), close);
  close.addEventListener("click", () => one.remove());
  byId("toasts").append(one);
  while (byId("toasts").children.length > 3) byId("toasts").firstChild.remove();
  setTimeout(() => one.remove(), 1000 * seconds);
}

/** Run something that may fail, and say so if it does. */
export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    complain(error);
    return undefined;
  }
}
