// The classes: add, teach, rename, merge, forget.
import { bar, byId, counted, h, icon, percent } from "./dom.js";
import { ask, confirmFinal } from "./dialogs.js";
import { addTexts, chooseFiles, makeDropTarget } from "./inputs.js";
import { forget, merge, rename } from "./learning.js";
import { announce, attempt, complain } from "./messages.js";
import { showLearned } from "./stored.js";
import { allClasses, asLabel, changed, itemWord, on, state } from "./state.js";

function addClass(text) {
  const label = asLabel(text);
  if (label === null) return complain(new Error(`expected a ${state.labelKind}, as the other labels are`));
  if (!allClasses().some((one) => one.label === label)) {
    state.planned = [...state.planned, label];
    changed("classes");
    announce(`Class ${label} added. Add examples to it.`);
  }
  return undefined;
}

/** Examples for one class: photos are chosen, texts are typed. */
async function addExamples(label) {
  if (state.model.takes !== "text") return chooseFiles(label);
  const field = h("textarea", { id: "class-texts", rows: 5, required: true });
  const yes = await ask(`Examples of ${label}`, [h("label", { for: "class-texts" }, "Texts, one per line"), field], [
    { text: "Cancel", value: false }, { text: "Teach", value: true, kind: "primary" },
  ]);
  return yes ? attempt(() => addTexts(field.value, label)) : undefined;
}

function showClasses() {
  const accuracy = new Map((state.quality?.classes ?? []).map((one) => [one.label, one.accuracy]));
  const many = state.classes.length > 1;
  byId("classes").replaceChildren(...allClasses().map(({ label, count }, i) => {
    const own = accuracy.get(label);
    const row = h(
      "li", { class: "class", "data-label": label },
      h("span", { class: "class-key", "aria-hidden": "true" }, i < 9 ? h("kbd", {}, String(i + 1)) : ""),
      h("span", { class: "class-name" }, String(label),
        h("span", { class: "quiet small" }, count ? counted(count, "example") : "no examples yet",
          many && own !== undefined && own !== null ? ` · ${percent(own)}` : "")),
      h("button", { class: "plain only-icon", "aria-label": `Add ${itemWord()}s to ${label}`, title: `Add ${itemWord()}s, or drop them here`, onclick: () => addExamples(label) }, icon("plus")),
      h("button", { class: "plain only-icon", "aria-label": `Edit ${label}`, title: "Rename, merge or forget", onclick: () => editClass(label) }, icon("edit")),
      many && typeof own === "number" ? bar(own, "thin") : null,
    );
    makeDropTarget(row, label);
    return row;
  }));
  byId("classes-hint").textContent = allClasses().length
    ? "" : "A class needs a name and a few examples. Classes can be added at any time.";
  byId("class-names").replaceChildren(...allClasses().map(({ label }) => h("option", { value: label })));
}

function editClass(label) {
  const others = state.classes.filter((one) => one.label !== label);
  const count = state.classes.find((one) => one.label === label)?.count ?? 0;
  const isPlanned = state.planned.includes(label);
  const name = h("input", { id: "edit-name", value: label, maxlength: 200 });
  const into = h("select", { id: "edit-into" }, ...others.map((one, i) => h("option", { value: i }, String(one.label))));
  let close = () => {};
  const then = (work) => () => { close(); work(); };
  const content = [
    h("label", { for: "edit-name" }, "Name"),
    h("div", { class: "row" }, name, h("button", { type: "button", onclick: () => doRename(label, name.value, () => close()) }, "Rename")),
  ];
  if (!isPlanned && others.length) {
    content.push(
      h("label", { for: "edit-into" }, "Merge into"),
      h("div", { class: "row" }, into, h("button", { type: "button", onclick: then(() => merge(label, others[into.value].label)) }, "Merge")),
    );
  }
  content.push(h("p", { class: "quiet small" }, isPlanned
    ? "No example of this class was learned yet."
    : "Renaming and merging need no training and can be undone. Forgetting cannot."));
  const shown = ask(`Class ${label}`, content, [
    ...(state.model.keeps_ids && !isPlanned ? [{ text: "Show examples", value: "show" }] : []),
    { text: isPlanned ? "Remove" : "Forget…", value: "forget", kind: "danger" }, { text: "Close", value: null },
  ]);
  close = () => name.closest("dialog").close();
  return shown.then((answer) => {
    if (answer === "forget") return forgetClass(label, count, isPlanned);
    return answer === "show" ? attempt(() => showLearned(label)) : null;
  });
}

function doRename(label, text, close) {
  const newLabel = asLabel(text);
  if (newLabel === null || newLabel === label) return;
  if (allClasses().some((one) => one.label === newLabel)) {
    complain(new Error(`${newLabel} is a class already; merge them instead`));
    return;
  }
  close();
  rename(label, newLabel);
}

async function forgetClass(label, count, isPlanned) {
  if (isPlanned) {
    state.planned = state.planned.filter((one) => one !== label);
    changed("classes");
    return;
  }
  const yes = await confirmFinal(
    `Forget ${label}?`,
    `The model will be as if it had never learned the ${counted(count ?? 0, "example")} of ${label}. `
      + "This is final: it cannot be undone, and neither can what was done before it.",
    "Forget",
  );
  if (yes) await forget({ classes: [label] });
}

/** Wire up the list of classes. */
export function startClasses() {
  on("classes", showClasses);
  on("quality", showClasses);
  byId("new-class").addEventListener("submit", (event) => {
    event.preventDefault();
    const input = byId("new-class-name");
    if (input.value.trim()) addClass(input.value);
    input.value = "";
  });
}
