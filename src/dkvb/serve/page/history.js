// What was done to the model, and the model as a file.
import { get, getBlob } from "./api.js";
import { byId, h } from "./dom.js";
import { attempt } from "./messages.js";
import { on, state } from "./state.js";

const NAMES = { merge_classes: "merge", forget_samples: "forget" };

async function save(format) {
  const url = URL.createObjectURL(await getBlob("v1/export", { format }));
  h("a", { href: url, download: `${state.model.name}.${format}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** Show the operations, the latest first. */
export async function showHistory() {
  const { history } = await get("v1/history", { n: 200 });
  const when = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const time = (text) => (Number.isNaN(Date.parse(text)) ? text : when.format(new Date(text)));
  const rows = history.reverse().map((one) => h("tr", {},
    h("td", { class: "number" }, one.sequence ?? "–"), h("th", { scope: "row" }, NAMES[one.operation] ?? one.operation),
    h("td", { class: "number" }, one.count), h("td", {}, time(one.time))));
  byId("view-history").replaceChildren(
    h("section", { class: "card" }, h("h2", {}, "The model as a file"),
      h("p", { class: "quiet" }, "An exported model can learn on. ONNX is for inference alone."),
      h("div", { class: "row" },
        h("button", { onclick: () => attempt(() => save("safetensors")) }, "Export safetensors"),
        h("button", { onclick: () => attempt(() => save("onnx")) }, "Export ONNX"))),
    h("section", { class: "card" }, h("h2", {}, "History"),
      h("p", { class: "quiet small" }, "Neither labels nor examples are part of it."),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Operations" },
        h("table", { class: "history" }, h("thead", {}, h("tr", {}, h("th", { scope: "col", class: "number" }, "Number"), h("th", { scope: "col" }, "Operation"),
          h("th", { scope: "col", class: "number" }, "Examples"), h("th", { scope: "col" }, "Time"))), h("tbody", {}, ...rows)))),
  );
}

/** Wire up the view. */
export function startHistory() {
  on("model", () => { if (!byId("view-history").hidden) attempt(showHistory); });
}
