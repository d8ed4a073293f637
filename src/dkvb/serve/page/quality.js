// How good the model is: accuracy and its course, accuracy per class, confusion.
import { bar, byId, h, percent } from "./dom.js";
import { lineChart } from "./chart.js";
import { on, state } from "./state.js";

const MOST_CLASSES = 30; // of the confusion table; the pairs that are confused most are listed always

const looPoints = () => (state.looCurve ?? []).map(({ rows, accuracy }) => ({ x: rows, y: accuracy }));
const prequentialPoints = () => state.quality.prequential.curve.map(({ scored, accuracy }) => ({ x: scored, y: accuracy }));

function showNumbers() {
  const { quality } = state;
  const many = quality.classes.length > 1;
  const { accuracy, kind, prequential } = quality;
  byId("accuracy-card").hidden = !many || (accuracy === null && !prequential.scored);
  if (!many) return;
  const numbers = [];
  if (accuracy !== null) numbers.push([percent(accuracy), kind, "learned examples, each predicted by the others"]);
  if (prequential.scored) {
    numbers.push([percent(prequential.recent_accuracy), "prequential",
      `the last ${Math.min(prequential.scored, prequential.recent_rows)}, each predicted before it was learned`]);
  }
  byId("numbers").replaceChildren(...numbers.map(([value, name, about]) => h("div", { title: about },
    h("dd", {}, value), h("dt", {}, name))));
  const points = looPoints().length > 1 ? looPoints() : prequentialPoints();
  const name = looPoints().length > 1 ? "Leave-one-out accuracy" : "Prequential accuracy";
  byId("small-chart").replaceChildren(...(points.length > 1 ? [lineChart(points, { title: name, unit: "examples", small: true })] : []));
}

function chartCard(title, about, value, points, unit) {
  return h("section", { class: "card" },
    h("div", { class: "card-head" }, h("h2", {}, title), h("strong", { class: "big" }, value)),
    h("p", { class: "quiet small" }, about),
    points.length > 1 ? lineChart(points, { title, unit }) : h("p", { class: "empty" }, "The curve begins with the next examples."));
}

const noteCard = (note) => h("section", { class: "card" }, h("h2", {}, "Accuracy"), h("p", { class: "quiet" }, note));

function classTable() {
  const sorted = [...state.quality.classes].sort((a, b) => (a.accuracy ?? 2) - (b.accuracy ?? 2));
  return h("section", { class: "card" }, h("h2", {}, "Classes, the weakest first"),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Accuracy per class" },
      h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Class"),
        h("th", { scope: "col", class: "number" }, "Examples"), h("th", { scope: "col", class: "number" }, "Right"), h("td", {}))),
      h("tbody", {}, ...sorted.map(({ label, count, accuracy }) => h("tr", {}, h("th", { scope: "row" }, String(label)),
        h("td", { class: "number" }, count ?? "–"), h("td", { class: "number" }, percent(accuracy)), h("td", { class: "wide" }, bar(accuracy ?? 0))))))));
}

function confusedPairs(labels, table) {
  const pairs = [];
  for (const [i, row] of table.entries()) {
    for (const [j, n] of row.entries()) if (n && i !== j) pairs.push({ n, given: labels[i], said: labels[j] });
  }
  pairs.sort((a, b) => b.n - a.n);
  if (!pairs.length) return h("p", { class: "quiet" }, "No two classes are confused.");
  return h("ul", { class: "pairs" }, ...pairs.slice(0, 5).map(({ n, given, said }) => h("li", {},
    h("strong", {}, String(given)), " taken for ", h("strong", {}, String(said)), `: ${n}`)));
}

function confusionTable(labels, table) {
  const head = h("tr", {}, h("th", { scope: "col" }, "Label"), ...labels.map((label) => h("th", { scope: "col" }, h("span", {}, String(label)))));
  const rows = table.map((row, i) => {
    const total = row.reduce((sum, n) => sum + n, 0);
    return h("tr", {}, h("th", { scope: "row" }, String(labels[i])), ...row.map((n, j) => {
      const cell = h("td", { class: i === j ? "right" : n ? "wrong" : "", title: `${labels[i]} predicted as ${labels[j]}: ${n}` }, n || "·");
      cell.style.setProperty("--share", String(total ? n / total : 0));
      return cell;
    }));
  });
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Confusion" },
    h("table", { class: "confusion" }, h("caption", { class: "quiet small" }, "One row per label, one column per prediction"),
      h("thead", {}, head), h("tbody", {}, ...rows)));
}

function confusionCard() {
  const { confusion, classes } = state.quality;
  const labels = classes.map((one) => one.label);
  return h("section", { class: "card" }, h("h2", {}, "Confusion"), confusedPairs(labels, confusion),
    labels.length <= MOST_CLASSES ? confusionTable(labels, confusion)
      : h("p", { class: "quiet small" }, `The table is shown for at most ${MOST_CLASSES} classes.`));
}

function show() {
  showNumbers();
  const { quality } = state;
  const view = byId("view-quality");
  if (quality.classes.length < 2) {
    view.replaceChildren(h("p", { class: "welcome" }, "Accuracy is measured from the second class on."));
    return;
  }
  const { prequential, accuracy, kind, note } = quality;
  const about = "Each learned example is predicted by the others. The curve is recorded while this page is open.";
  const before = prequential.scored
    ? `Examples that were predicted before they were learned: ${prequential.scored} since the service started; `
      + `accuracy of the last ${prequential.recent_rows}.`
    : "Examples that are predicted before they are learned count here.";
  view.replaceChildren(
    h("div", { class: "two" },
      accuracy === null ? noteCard(note) : chartCard(`Accuracy, ${kind}`, about, percent(accuracy), looPoints(), "examples"),
      chartCard("Accuracy, prequential", before, percent(prequential.recent_accuracy), prequentialPoints(), "predicted")),
    ...(accuracy === null ? [] : [h("div", { class: "two" }, classTable(), confusionCard())]),
  );
}

/** Wire up what shows accuracy. */
export function startQuality() {
  on("quality", show);
}
