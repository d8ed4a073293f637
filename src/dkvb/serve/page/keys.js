// Keyboard shortcuts; none of them acts while something is typed or asked.
import { acceptSelection, removeSelection, teachSelection } from "./action.js";
import { capture, isOpen } from "./camera.js";
import { showShortcuts } from "./dialogs.js";
import { byId } from "./dom.js";
import { select, selectAll } from "./items.js";
import { undo } from "./learning.js";
import { allClasses, changed, state } from "./state.js";

const ACTIONS = {
  l: () => byId("action-name").focus(),
  u: undo,
  "?": showShortcuts,
  Escape: () => {
    state.selected.clear();
    changed("selection");
  },
};

function onItems(event) {
  if (event.key === "Enter") acceptSelection();
  else if (event.key === "Delete" || event.key === "Backspace") removeSelection();
  else if (event.key === " " && state.active) select(state.active, "toggle");
  else if (event.key === "a" && (event.ctrlKey || event.metaKey)) selectAll();
  else return false;
  return true;
}

function press(event) {
  if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
  if (event.target.closest("input, textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (byId("view-teach").hidden && !["u", "z", "?"].includes(event.key)) return;
  const control = event.ctrlKey || event.metaKey;
  let done = true;
  if (event.target.closest("#items") && onItems(event)) done = true;
  else if (control && event.key === "z") undo();
  else if (control || event.altKey) done = false;
  else if (/^[1-9]$/.test(event.key) && allClasses()[event.key - 1]) {
    const { label } = allClasses()[event.key - 1];
    if (isOpen()) capture(label);
    else teachSelection(label);
  } else if (ACTIONS[event.key] && (event.key !== "l" || state.selected.size)) ACTIONS[event.key]();
  else done = false;
  if (done) event.preventDefault();
}

/** Listen to the keyboard. */
export function startKeys() {
  document.addEventListener("keydown", press);
  byId("keys").addEventListener("click", showShortcuts);
}
