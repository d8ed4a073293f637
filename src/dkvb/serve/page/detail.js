// One item: what was predicted, how new it is, and what decided.
import { bar, byId, h, icon, percent } from "./dom.js";
import { NEW } from "./items.js";
import { complain } from "./messages.js";
import { keptPicture } from "./pictures.js";
import { explain } from "./predicting.js";
import { changed, on, state } from "./state.js";

let shown = ""; // what the panel shows: item, prediction and sequence
/** A small picture of a learned example: of this page, or kept by the service. */
export async function fillThumbnail(figure, { id, image }) {
  const own = state.items.find((item) => item.learned && id !== null && item.learned.id === id);
  if (own?.text) figure.prepend(h("p", { class: "item-text" }, own.text));
  const url = own?.url ?? (image ? await keptPicture(id) : null);
  if (url) figure.prepend(h("img", { src: url, alt: "" }));
}

function exampleFigure(one) {
  const figure = h("figure", { class: "example" },
    h("figcaption", {}, h("strong", {}, String(one.label)),
      h("span", { class: "quiet small" }, `${percent(Math.abs(one.share))} of the decision`)));
  fillThumbnail(figure, one);
  return figure;
}

function reasons(why) {
  const examples = (why?.examples ?? []).filter((one) => Math.abs(one.share) >= 0.005);
  if (examples.length) {
    return [h("h3", {}, "Learned examples that decided"),
      h("div", { class: "examples" }, ...examples.slice(0, 6).map(exampleFigure))];
  }
  if (why?.keys?.length) {
    const rows = why.keys.map(({ codebook, pair, label, lead, selected }) => h("tr", {},
      h("td", {}, `${codebook}.${pair}`), h("td", {}, String(label)), h("td", {}, lead.toFixed(2)),
      h("td", {}, selected)));
    return [h("h3", {}, "Keys that decided"),
      h("table", { class: "keys" }, h("thead", {}, h("tr", {}, ...["Key", "Class", "Lead", "Examples"]
        .map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, ...rows))];
  }
  return [];
}

function novelty(value) {
  if (value === null || value === undefined) return [];
  const text = value >= NEW ? "Unlike anything seen before."
    : `Farther from the learned examples than ${percent(value)} of them are from each other.`;
  return [h("h3", {}, "Novelty"), h("p", { class: value >= NEW ? "marked" : "quiet" },
    h("strong", {}, value.toFixed(2)), ` ${text}`)];
}

function probabilities(prediction) {
  const list = h("ul", { class: "ranks" });
  for (const { label, probability } of prediction.top ?? []) {
    list.append(h("li", {}, h("span", { class: "rank-name" }, String(label)), bar(probability),
      h("span", { class: "rank-value" }, percent(probability))));
  }
  return [h("h3", {}, "Probability"), list];
}

function frame(item, content) {
  const close = h("button", { class: "plain only-icon", "aria-label": "Close the details", onclick: () => {
    state.active = null;
    state.selected.clear();
    changed("selection");
  } }, icon("close"));
  const title = item.learned ? `Learned as ${item.learned.label}`
    : item.prediction ? `Predicted: ${item.prediction.label}` : "No label yet";
  byId("detail").replaceChildren(
    h("div", { class: "detail-head" }, h("h2", { id: "detail-heading" }, title), close),
    item.url ? h("img", { class: "detail-image", src: item.url, alt: item.name })
      : h("p", { class: "detail-text" }, item.text ?? item.name),
    h("p", { class: "quiet small detail-name" }, item.url ? item.name : ""),
    ...content,
  );
}

async function show() {
  const item = state.active;
  byId("detail").hidden = !item;
  if (!item) {
    shown = "";
    return;
  }
  const now = `${item.key} ${item.state} ${item.learned?.label} ${item.prediction?.label} ${state.model.sequence}`;
  if (now === shown) return;
  const isOther = !shown.startsWith(`${item.key} `);
  shown = now;
  if (item.kind === "stored") return frame(item, []);
  if (item.state === "failed") return frame(item, [h("p", { class: "wrong" }, item.problem)]);
  if (item.state || !state.model.classes) {
    const hint = state.model.classes ? "" : "Select it and give it a label below. The first label makes the first class.";
    return frame(item, [h("p", { class: "quiet" }, hint)]);
  }
  if (isOther) frame(item, item.prediction && !item.learned ? probabilities(item.prediction) : []);
  try {
    const answer = await explain(item);
    if (shown !== now) return;
    const note = item.learned ? [h("p", { class: "quiet small" },
      `With what it knows now, the model says ${answer.label} (${percent(answer.probability)}).`)] : [];
    frame(item, [...note, ...probabilities(answer), ...novelty(answer.novelty), ...reasons(answer.why)]);
  } catch (error) {
    if (shown === now) frame(item, item.prediction ? probabilities(item.prediction) : []);
    if (error.status !== 409) complain(error); // 409: this classifier cannot say what decided
  }
}

/** Wire up the panel. */
export function startDetail() {
  for (const topic of ["selection", "items", "model"]) on(topic, show);
}
