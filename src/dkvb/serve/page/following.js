// The model as it is now: read after each change, of this page or of others.
import { get } from "./api.js";
import { complain } from "./messages.js";
import { orderByUse, predictItems } from "./predicting.js";
import { changed, state } from "./state.js";
import { store, stored } from "./storage.js";

/** Read model and classes again; accuracy and predictions follow a little later. */
export async function refresh() {
  const [model, classes] = await Promise.all([get("v1/model"), get("v1/classes")]);
  const isNew = state.model?.sequence !== model.sequence;
  state.model = model;
  state.labelKind = classes.kind;
  const counts = new Map(classes.classes.map((one) => [one.label, one]));
  const known = state.classes.filter((one) => counts.has(one.label)).map((one) => counts.get(one.label));
  const before = new Set(known.map((one) => one.label));
  state.classes = [...known, ...classes.classes.filter((one) => !before.has(one.label))];
  state.planned = state.planned.filter((label) => !counts.has(label));
  changed("model", "classes");
  if (isNew) followUp();
}

let waiting = null;
let following = false;

function followUp(milliseconds = 200) {
  clearTimeout(waiting);
  waiting = setTimeout(follow, milliseconds);
}

async function follow() {
  if (following) return followUp();
  following = true;
  try {
    await predictItems(state.items.filter((item) => !item.learned && !item.state));
    await readQuality();
    if (state.useful) await orderByUse();
  } catch (error) {
    complain(error);
  } finally {
    following = false;
  }
  return undefined;
}

async function readQuality() {
  state.quality = await get("v1/quality");
  const { rows, accuracy } = state.quality;
  if (accuracy !== null && state.quality.classes.length > 1) {
    state.looCurve = [...looCurve().filter((one) => one.rows < rows), { rows, accuracy }].slice(-500);
    store("sessionStorage", curveKey(), JSON.stringify(state.looCurve));
  }
  state.suspects = state.model.rows && state.model.keeps_ids ? (await get("v1/suspects")).suspects : [];
  changed("quality", "suspects");
}

const curveKey = () => `dkvb-curve ${state.model.name}`;

/** The curve so far, also of this tab before it was loaded again. */
function looCurve() {
  return state.looCurve ?? JSON.parse(stored("sessionStorage", curveKey()) ?? "[]");
}
