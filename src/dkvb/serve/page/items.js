// The items as a listbox: pictures or texts with what was predicted or learned.
import { bar, byId, h, icon, percent } from "./dom.js";
import { attempt } from "./messages.js";
import { orderByUse } from "./predicting.js";
import { changed, itemWord, on, state } from "./state.js";

/** @typedef {import("./state.js").Item} Item */

export const NEW = 0.95; // novelty from which an item is marked
const UNSURE = 0.6; // probability below which an item is marked
const elements = new WeakMap();
const rendered = new WeakMap(); // what an element says

/** Items as they are shown: filtered, and in their order. @returns {Item[]} */
export function shownItems() {
  const passes = {
    all: () => true,
    open: (item) => !item.learned,
    learned: (item) => item.learned,
  }[state.filter];
  const found = state.items.filter(passes);
  if (!state.useful) return found;
  const place = (item) => state.useful.get(item) ?? Infinity;
  return found.sort((a, b) => Math.sign(place(a) - place(b)) || 0);
}

/** Select one item alone, or more. @param {Item} item @param {"only" | "toggle" | "range"} how */
export function select(item, how = "only") {
  const shown = shownItems();
  if (how === "toggle") {
    if (!state.selected.delete(item)) state.selected.add(item);
  } else {
    const from = how === "range" && state.active ? shown.indexOf(state.active) : -1;
    const to = shown.indexOf(item);
    if (how === "only" || from < 0) state.selected.clear();
    const range = from < 0 ? [item] : shown.slice(Math.min(from, to), Math.max(from, to) + 1);
    for (const one of range) state.selected.add(one);
  }
  state.active = item;
  changed("selection");
}

/** Move the focus to an item. */
export function focusItem(item) {
  state.active = item;
  changed("selection");
  queueMicrotask(() => queueMicrotask(() => elements.get(item)?.focus()));
}

/** Select the item to label after this one, for the next key. */
export function advance(from) {
  const shown = shownItems();
  const next = [...shown.slice(from), ...shown.slice(0, from)].find(
    (item) => !item.learned && item.state !== "learning" && item.state !== "failed",
  );
  state.selected.clear();
  if (next) {
    select(next);
    focusItem(next);
  } else {
    changed("selection");
  }
}

function text(item) {
  if (item.state === "waiting") return ["predicting …", ""];
  if (item.state === "learning") return ["learning …", ""];
  if (item.state === "failed") return ["not taken", item.problem];
  if (item.learned) return [String(item.learned.label), ""];
  if (!item.prediction) return ["no label yet", ""];
  const { label, probability, novelty } = item.prediction;
  const marks = [novelty >= NEW && "new", probability < UNSURE && "unsure"].filter(Boolean);
  return [String(label), [percent(probability), ...marks].join(", ")];
}

function render(item) {
  const element = elements.get(item) ?? create(item);
  const [label, more] = text(item);
  const { learned, prediction } = item;
  const kind = item.state || (learned ? "learned" : prediction ? "predicted" : "unlabelled");
  const now = `${kind} ${label} ${more} ${prediction?.probability}`;
  if (rendered.get(item) === now) return element;
  rendered.set(item, now);
  element.className = `item ${item.kind} ${kind}`;
  const said = { learned: " learned as ", predicted: " predicted " }[kind] ?? " ";
  const isUnsure = prediction?.probability < UNSURE;
  element.lastChild.replaceChildren(
    h("span", { class: "hidden-label" }, said),
    h("span", { class: "item-label" }, kind === "learned" && icon("check"), label),
    ...(kind === "predicted" ? [bar(prediction.probability, isUnsure ? "unsure" : "")] : []),
    h("span", { class: "item-more" }, ` ${more}`),
  );
  return element;
}

function create(item) {
  const picture = item.url
    ? h("img", { src: item.url, alt: item.name, draggable: "false", loading: "lazy", onerror: (event) => {
      event.target.replaceWith(h("p", { class: "item-text" }, item.name)); // such as HEIC
    } })
    : h("p", { class: "item-text" }, item.kind === "text" ? item.text : item.name);
  const element = h(
    "li", { role: "option", tabindex: "-1", "aria-selected": "false", title: item.kind === "image" ? item.name : null },
    h("span", { class: "item-mark", "aria-hidden": "true" }, icon("check")),
    picture,
    h("div", { class: "item-foot" }),
  );
  element.addEventListener("click", (event) => {
    const onMark = event.target.closest(".item-mark");
    const many = onMark || event.ctrlKey || event.metaKey || event.pointerType === "touch";
    select(item, event.shiftKey ? "range" : many ? "toggle" : "only");
    focusItem(item);
  });
  elements.set(item, element);
  return element;
}

function showItems() {
  const shown = shownItems();
  const list = byId("items");
  const focused = document.activeElement?.closest("#items") ? document.activeElement : null;
  const wanted = shown.map(render);
  if (wanted.length !== list.children.length || wanted.some((one, i) => one !== list.children[i])) {
    list.replaceChildren(...wanted);
  }
  list.hidden = !shown.length;
  focused?.focus();
  byId("items-heading").textContent = `${itemWord()}s`.replace(/^./, (c) => c.toUpperCase());
  const open = state.items.filter((item) => !item.learned).length;
  const tallies = [state.items.length, open, state.items.length - open];
  for (const [i, tally] of [...document.querySelectorAll(".tally")].entries()) tally.textContent = ` ${tallies[i]}`;
  document.querySelector(".items-head").hidden = !state.items.length;
  showWelcome();
  showSelection();
}

function showSelection() {
  const shown = shownItems();
  const entry = shown.includes(state.active) ? state.active : shown[0];
  for (const item of shown) {
    const element = elements.get(item);
    element.setAttribute("aria-selected", String(state.selected.has(item)));
    element.tabIndex = item === entry ? 0 : -1;
  }
}

function showWelcome() {
  const box = byId("welcome");
  box.hidden = state.items.length > 0;
  if (box.hidden) return;
  const word = itemWord();
  const steps = state.model.classes
    ? [`Add ${word}s: each is predicted as soon as it is here.`,
      "Press Enter to accept a prediction, or the number of a class to correct it.",
      "Every example counts at once. Nothing that was learned before is lost."]
    : ["Name a class on the left, and add some examples to it.",
      `Do the same for a second class. Five ${word}s of each are a good start.`,
      `Add more ${word}s here: each is predicted, and you correct what is wrong.`];
  box.replaceChildren(
    h("h3", {}, state.model.classes ? "What next" : "Teach the first classes"),
    h("ol", {}, ...steps.map((step) => h("li", {}, step))),
  );
}

function move(event) {
  const shown = shownItems();
  const at = shown.indexOf(state.active);
  const list = byId("items");
  const columns = Math.max(1, getComputedStyle(list).gridTemplateColumns.split(" ").length);
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -at, End: shown.length - 1 - at };
  if (!(event.key in step)) return;
  event.preventDefault();
  const to = at < 0 ? 0 : at + step[event.key];
  if (!shown[to]) return;
  if (event.shiftKey) select(shown[to], "range");
  else if (!event.ctrlKey && !event.metaKey) select(shown[to]);
  focusItem(shown[to]);
}

/** Wire up the list of items. */
export function startItems() {
  on("items", showItems);
  on("model", showItems);
  on("selection", showSelection);
  byId("items").addEventListener("keydown", move);
  byId("items").addEventListener("focusin", (event) => {
    const item = shownItems().find((one) => elements.get(one) === event.target);
    if (item && item !== state.active) {
      state.active = item;
      changed("selection");
    }
  });
  byId("filters").addEventListener("click", (event) => {
    const filter = event.target.closest("button")?.dataset.filter;
    if (!filter) return;
    state.filter = filter;
    for (const button of byId("filters").children) {
      button.setAttribute("aria-pressed", String(button.dataset.filter === filter));
    }
    changed("items");
  });
  byId("order").addEventListener("click", async (event) => {
    const wanted = event.target.getAttribute("aria-pressed") !== "true";
    event.target.setAttribute("aria-pressed", String(wanted));
    if (wanted) await attempt(orderByUse);
    else state.useful = null;
    changed("items");
  });
  byId("select-all").addEventListener("click", selectAll);
}

/** Select all items that are shown. */
export function selectAll() {
  state.selected = new Set(shownItems());
  state.active ??= shownItems()[0] ?? null;
  changed("selection");
}

