// Items as the bodies of requests: remembered ids where there are some, else the content itself.
import { state } from "./state.js";

const MOST_ITEMS = 16; // per request, so that answers come while later ones are encoded
const MOST_IDS = 500;

/**
 * Bodies for items, none larger than the service takes.
 * @param {import("./state.js").Item[]} items
 * @returns {import("./state.js").Item[][]}
 */
export function parts(items, mostItems = MOST_ITEMS) {
  const { body_bytes: bytes, rows } = state.model.limits;
  const found = [];
  let part = [];
  let size = 0;
  let known = null;
  for (const item of items) {
    const isKnown = item.predictionId !== null;
    const own = isKnown ? 100 : contentBytes(item) + 500;
    const most = Math.min(rows, isKnown ? MOST_IDS : mostItems);
    if (part.length && (isKnown !== known || part.length >= most || size + own > 0.95 * bytes)) {
      found.push(part);
      part = [];
      size = 0;
    }
    part.push(item);
    size += own;
    known = isKnown;
  }
  return part.length ? [...found, part] : found;
}

function contentBytes({ kind, blob, text, row }) {
  return { image: blob?.size, text: 4 * (text?.length ?? 0), row: 25 * (row?.length ?? 0) }[kind];
}

/**
 * The body for one part.
 * @param {import("./state.js").Item[]} part
 * @param {{labels?: any[], oldLabels?: any[]}} [names] one per item
 */
export function bodyOf(part, { labels, oldLabels } = {}) {
  const json = { ...(labels && { labels }), ...(oldLabels && { old_labels: oldLabels }) };
  if (part[0].predictionId !== null) {
    return { prediction_ids: part.map((item) => item.predictionId), ...json };
  }
  if (part[0].kind === "text") return { texts: part.map((item) => item.text), ...json };
  if (part[0].kind === "row") {
    return { embeddings: part.map((item) => [...item.row]), ...json };
  }
  const form = new FormData();
  for (const item of part) form.append("image", item.blob, "image");
  for (const label of labels ?? []) form.append("label", String(label));
  for (const label of oldLabels ?? []) form.append("old_label", String(label));
  return form;
}
