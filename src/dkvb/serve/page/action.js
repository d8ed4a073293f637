// What is done with the selection: teach, accept, remove, forget.
import { byId, counted, h } from "./dom.js";
import { confirmFinal } from "./dialogs.js";
import { advance, shownItems } from "./items.js";
import { forget, removeItems, teach } from "./learning.js";
import { complain, say } from "./messages.js";
import { allClasses, asLabel, changed, itemWord, on, state } from "./state.js";

const chosen = () => [...state.selected];

/** Teach the selection as a class, and go on to the next item. */
export function teachSelection(label) {
  const items = chosen().filter((item) => item.state !== "failed" && item.state !== "waiting");
  if (!items.length) return say(`Select a ${itemWord()} first.`);
  const at = shownItems().indexOf(items.at(-1));
  teach(items.map((item) => ({ item, label })));
  return advance(state.filter === "open" ? Math.max(0, at - items.length + 1) : at + 1);
}

/** Teach the selection as what was predicted. */
export function acceptSelection() {
  const items = chosen().filter((item) => !item.learned && !item.state && item.prediction);
  const known = new Set(state.classes.map((one) => one.label));
  const pairs = items.map((item) => ({ item, label: item.prediction.label })).filter(({ label }) => known.has(label));
  if (!pairs.length) return say("There is no prediction to accept here.");
  const at = shownItems().indexOf(items.at(-1));
  teach(pairs);
  return advance(at + 1);
}

/** Remove the selection from the page. */
export function removeSelection() {
  const items = chosen();
  const at = Math.max(0, shownItems().indexOf(items[0]));
  removeItems(items);
  if (shownItems().length) advance(at);
}

async function forgetSelection() {
  const ids = chosen().filter((item) => item.learned).map((item) => item.learned.id);
  const yes = await confirmFinal(
    `Forget ${counted(ids.length, itemWord())}?`,
    "The model will be as if it had never learned them. This is final: it cannot be undone.",
    "Forget",
  );
  if (yes) await forget({ ids });
}

/** Buttons that teach classes, with their number keys. */
export function classButtons(press, pressed = () => false) {
  return allClasses().map(({ label }, i) => h(
    "button", { class: "chip", type: "button", "data-label": label, "aria-pressed": pressed(label) ? "true" : null, onclick: () => press(label) },
    String(label), i < 9 && h("kbd", {}, String(i + 1)),
  ));
}

function show() {
  const items = [...state.selected];
  byId("action").hidden = !items.length;
  if (!items.length) return;
  const learned = items.filter((item) => item.learned);
  byId("action-count").textContent = `${items.length} selected`;
  const predicted = items.filter((item) => !item.learned && !item.state && item.prediction);
  byId("action-accept").hidden = !predicted.length;
  byId("action-accept-text").textContent = predicted.length === 1
    ? `Accept ${predicted[0].prediction.label}` : "Accept predictions";
  byId("action-forget").hidden = !learned.length || !state.model.keeps_ids;
  byId("action-classes").replaceChildren(...classButtons(teachSelection));
}

/** Wire up the bar below the items. */
export function startAction() {
  for (const topic of ["selection", "items", "classes"]) on(topic, show);
  byId("action-accept").addEventListener("click", acceptSelection);
  byId("action-remove").addEventListener("click", removeSelection);
  byId("action-forget").addEventListener("click", forgetSelection);
  byId("action-clear").addEventListener("click", () => {
    state.selected.clear();
    changed("selection");
  });
  byId("action-new").addEventListener("submit", (event) => {
    event.preventDefault();
    const input = byId("action-name");
    const label = asLabel(input.value);
    if (label === null) {
      if (input.value.trim()) complain(new Error(`expected a ${state.labelKind}, as the other labels are`));
      return input.focus();
    }
    input.value = "";
    return teachSelection(label);
  });
}
