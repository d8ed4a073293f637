// What the model says of items, what decided, and which to label next.
import { post, ServiceError } from "./api.js";
import { bodyOf, parts } from "./requests.js";
import { changed, state } from "./state.js";

/** @typedef {import("./state.js").Item} Item */

/** Ask for predictions of items; nothing is asked of a model without classes. @param {Item[]} items */
export async function predictItems(items, progress = () => {}) {
  if (!state.model.classes) {
    for (const item of items) Object.assign(item, { prediction: null, state: "" });
    changed("items");
    return;
  }
  let done = 0;
  for (const part of parts(items)) {
    await predictPart(part);
    done += part.length;
    progress(done, items.length);
  }
}

async function predictPart(part) {
  const query = { remember: true, top: 5 };
  try {
    const answer = await post("v1/predict", bodyOf(part), query);
    for (const [i, item] of part.entries()) {
      const { prediction_id: id, ...prediction } = answer.predictions[i];
      if (!item.learned) Object.assign(item, { predictionId: id, prediction });
      if (item.state === "waiting") item.state = "";
    }
  } catch (error) {
    await predictOtherwise(part, error);
  }
  changed("items");
}

/** After an error: send again what is no longer remembered, and find the item that is to blame. */
async function predictOtherwise(part, error) {
  if (!(error instanceof ServiceError)) throw error;
  if (error.status === 404 && part[0].predictionId !== null) {
    for (const item of part) item.predictionId = null;
    for (const again of parts(part)) await predictPart(again);
  } else if (error.status === 409 && !state.model.classes) {
    for (const item of part) Object.assign(item, { prediction: null, state: "" });
  } else if ([413, 422].includes(error.status) && part.length > 1) {
    for (const item of part) await predictPart([item]);
  } else {
    for (const item of part) Object.assign(item, { state: "failed", problem: error.message });
    if (![413, 422].includes(error.status)) throw error;
  }
}

/** The prediction of one item with what decided. @param {Item} item */
export async function explain(item) {
  const ask = () => post("v1/predict", bodyOf([item]), { explain: true, top: 5 });
  const answer = await ask().catch((error) => {
    if (error.status !== 404 || item.predictionId === null) throw error;
    item.predictionId = null; // no longer remembered: send the content
    return ask();
  });
  return answer.predictions[0];
}

/** Order items by how much their labels would teach. */
export async function orderByUse() {
  const open = state.items.filter((item) => item.predictionId !== null);
  if (!open.length) {
    state.useful = new Map();
  } else {
    const ids = open.map((item) => item.predictionId);
    const answer = await post("v1/suggestions", { prediction_ids: ids }, { n: Math.min(1000, ids.length) });
    state.useful = new Map(answer.suggestions.map(({ row }, i) => [open[row], i]));
  }
  changed("items");
}
