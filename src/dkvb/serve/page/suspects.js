// Learned examples whose label the others contradict.
import { confirmFinal } from "./dialogs.js";
import { fillThumbnail } from "./detail.js";
import { byId, h, percent } from "./dom.js";
import { forget, relabelRows } from "./learning.js";
import { itemWord, on, state } from "./state.js";

const kept = new Set(); // ids whose labels were looked at and are right

async function forgetOne(id) {
  const yes = await confirmFinal(`Forget this ${itemWord()}?`,
    "The model will be as if it had never learned it. This is final: it cannot be undone.", "Forget");
  if (yes) await forget({ ids: [id] });
}

function suspect(one) {
  const card = h("li", { class: "card suspect" });
  const figure = h("figure", {});
  fillThumbnail(figure, one);
  card.append(figure, h("div", {},
    h("p", {}, "Learned as ", h("strong", {}, String(one.label)), ". The others say ",
      h("strong", {}, String(one.predicted)), ` (${percent(one.probability)}).`),
    h("p", { class: "quiet small id" }, one.id === null ? "" : String(one.id)),
    h("div", { class: "row" },
      one.id !== null && h("button", { class: "chip", onclick: () => relabelRows([one.id], one.predicted) }, `Relabel as ${one.predicted}`),
      h("button", { class: "chip", onclick: () => { kept.add(one.id); show(); } }, "Label is right"),
      one.id !== null && h("button", { class: "chip danger", onclick: () => forgetOne(one.id) }, "Forget…"))));
  return card;
}

function show() {
  const found = state.suspects.filter((one) => !kept.has(one.id));
  const count = byId("suspects-count");
  count.textContent = String(found.length);
  count.hidden = !found.length;
  byId("view-suspects").replaceChildren(
    h("h2", {}, "Suspects"),
    h("p", { class: "quiet" }, found.length
      ? "Learned examples whose label the others contradict, the clearest first."
      : "No label of a learned example is contradicted by the others."),
    h("ul", { class: "suspects" }, ...found.map(suspect)),
  );
}

/** Wire up the list. */
export function startSuspects() {
  on("suspects", show);
}
