// Everything that changes the model, and what follows for the items.
import { change } from "./api.js";
import { counted } from "./dom.js";
import { refresh } from "./following.js";
import { announce, complain, say } from "./messages.js";
import { dropPicture } from "./pictures.js";
import { bodyOf, parts } from "./requests.js";
import { changed, itemWord, state } from "./state.js";

/** @typedef {import("./state.js").Item} Item */

const MOST_LEARNED = 64; // images per request that are sent with their labels

/** Operations of this page that may be undone: what items were before. @type {{sequence: number, before: Map<Item, any>}[]} */
let operations = [];
let queue = Promise.resolve();

/** Changes are made one after another, in the order of the keys that were pressed. */
function inOrder(work) {
  const done = queue.then(work).catch(complain);
  queue = done;
  return done;
}

/**
 * Teach items: those that were not learned are learned, the others get the new label.
 * @param {{item: Item, label: any}[]} pairs
 */
export function teach(pairs) {
  const fresh = pairs.filter(({ item }) => !item.learned && item.state !== "learning");
  const wrong = pairs.filter(({ item, label }) => item.learned && item.learned.label !== label);
  for (const { item } of [...fresh, ...wrong]) item.state = "learning";
  changed("items");
  return inOrder(async () => {
    try {
      await learn(fresh);
      await relabel(wrong);
    } finally {
      for (const { item } of pairs) if (item.state === "learning") item.state = "";
      changed("items");
      await refresh();
    }
  });
}

async function learn(pairs) {
  const labels = new Map(pairs.map(({ item, label }) => [item, label]));
  for (const part of parts([...labels.keys()], MOST_LEARNED)) {
    const answer = await learnPart(part, part.map((item) => labels.get(item)));
    record(answer, part);
    for (const [i, item] of part.entries()) {
      const id = answer.ids?.[i] ?? null;
      Object.assign(item, { learned: { label: labels.get(item), id }, predictionId: null, state: "" });
    }
    changed("items");
  }
  if (pairs.length) announce(`Learned ${counted(pairs.length, itemWord())}.`);
}

async function learnPart(part, labels) {
  try {
    return await change("v1/learn", bodyOf(part, { labels }));
  } catch (error) {
    if (error.status !== 404 || part[0].predictionId === null) throw error;
    for (const item of part) item.predictionId = null; // no longer remembered: send the content
    return change("v1/learn", bodyOf(part, { labels }));
  }
}

async function relabel(pairs) {
  if (!pairs.length) return;
  const items = pairs.map(({ item }) => item);
  const labels = pairs.map(({ label }) => label);
  const content = state.model.keeps_ids
    ? { ids: items.map((item) => item.learned.id), labels }
    : bodyOf(items, { labels, oldLabels: items.map((item) => item.learned.label) });
  record(await change("v1/relabel", content), items);
  for (const { item, label } of pairs) item.learned = { ...item.learned, label };
  say(`Corrected ${counted(items.length, itemWord())}.`);
}

/** Give learned rows that are not on this page another label. */
export function relabelRows(ids, label) {
  return inOrder(async () => {
    const shown = state.items.filter((item) => item.learned && ids.includes(item.learned.id));
    record(await change("v1/relabel", { ids, label }), shown);
    for (const item of shown) item.learned = { ...item.learned, label };
    say(`Corrected ${counted(ids.length, itemWord())}.`);
    changed("items");
    await refresh();
  });
}

function record(answer, items) {
  const before = new Map(items.map((item) => [item, item.learned]));
  operations = [...operations, { sequence: answer.sequence, before }].slice(-200);
}

/** Undo the last operation, if it is still the one that the page shows. */
export function undo() {
  return inOrder(async () => {
    const last = state.model.undo;
    if (!last) return say("There is nothing to undo. Forgetting is final.");
    try {
      await change("v1/undo", { sequence: last.sequence });
    } catch (error) {
      await refresh(); // somebody else did something since
      throw error;
    }
    const known = operations.find((one) => one.sequence === last.sequence);
    operations = operations.filter((one) => one !== known);
    for (const [item, learned] of known?.before ?? []) item.learned = learned;
    changed("items");
    say(`Undone: ${operationText(last)}.`);
    return refresh();
  });
}

/** "learn of 3 photos". */
export function operationText({ operation, count }) {
  const name = { merge_classes: "merge", forget_samples: "forget" }[operation] ?? operation;
  return `${name} of ${counted(count, itemWord())}`;
}

/** Give a class another name. */
export function rename(label, newLabel) {
  return inOrder(async () => {
    if (state.planned.includes(label)) {
      state.planned = state.planned.map((one) => (one === label ? newLabel : one));
      return changed("classes");
    }
    await relabelled([label], newLabel, () => change("v1/rename", { label, new_label: newLabel }));
    return say(`Renamed ${label} to ${newLabel}.`);
  });
}

/** Make one class of two. */
export function merge(label, into) {
  return inOrder(async () => {
    await relabelled([label], into, () => change("v1/merge", { labels: [label, into], into }));
    say(`Merged ${label} into ${into}.`);
  });
}

async function relabelled(labels, into, request) {
  const items = state.items.filter((item) => item.learned && labels.includes(item.learned.label));
  record(await request(), items);
  for (const item of items) item.learned = { ...item.learned, label: into };
  // The class keeps its number key.
  state.classes = state.classes.map((one) => (labels.includes(one.label) ? { ...one, label: into } : one));
  state.classes = state.classes.filter((one, i, all) => all.findIndex((other) => other.label === one.label) === i);
  changed("items");
  await refresh();
}

/** Forget a class, or rows by their ids; final. What is forgotten leaves the page, too. */
export function forget({ classes, ids }) {
  return inOrder(async () => {
    const answer = await change("v1/forget", { ...(classes ? { classes } : { ids }), confirm: true });
    operations = [];
    removeItems(state.items.filter(({ learned }) => learned
      && (classes ? classes.includes(learned.label) : ids.includes(learned.id))));
    for (const item of state.items) item.predictionId = null; // the service has dropped them
    say(`Forgot ${counted(answer.count, itemWord())}.`);
    await refresh();
  });
}

/** Remove items from the page; the model is not changed. @param {Item[]} items */
export function removeItems(items) {
  const gone = new Set(items);
  for (const item of gone) {
    if (item.kind === "image") URL.revokeObjectURL(item.url);
    else if (item.kind === "stored") dropPicture(item.learned.id);
  }
  state.items = state.items.filter((item) => !gone.has(item));
  for (const item of gone) state.selected.delete(item);
  if (gone.has(state.active)) state.active = null;
  changed("items", "selection");
}
