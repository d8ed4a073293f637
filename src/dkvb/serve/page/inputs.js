// How items come in: files that are dropped, chosen or pasted, and texts.
import { byId, counted } from "./dom.js";
import { select } from "./items.js";
import { teach } from "./learning.js";
import { announce, attempt, complain } from "./messages.js";
import { readNpy } from "./npy.js";
import { predictItems } from "./predicting.js";
import { changed, itemWord, state } from "./state.js";

let nextKey = 0;
let targetClass = null; // the class that the file chooser was opened for

/** An item that waits to be predicted. @returns {import("./state.js").Item} */
export function newItem(fields) {
  nextKey += 1;
  return { key: nextKey, predictionId: null, prediction: null, learned: null, state: "waiting", ...fields };
}

/** An item of an image. */
export function imageItem(blob, name) {
  return newItem({ kind: "image", blob, name, url: URL.createObjectURL(blob) });
}

/**
 * Show items, predict them, and teach them where a label is given.
 * @param {import("./state.js").Item[]} items
 */
export async function addItems(items, label = null) {
  if (!items.length) return;
  state.items = [...items, ...state.items];
  changed("items");
  announce(`Added ${counted(items.length, itemWord())}.`);
  // A class that is new could not have been predicted.
  const isNew = label !== null && !state.classes.some((one) => one.label === label);
  if (!isNew) await attempt(() => predictItems(items, showProgress));
  byId("progress").hidden = true;
  if (state.model.classes && label === null) announce(`Predicted ${counted(items.length, itemWord())}.`);
  if (label !== null) {
    await teach(items.filter((item) => item.state !== "failed").map((item) => ({ item, label })));
  } else if (!state.selected.size && state.items.includes(items[0])) {
    select(items[0]); // for the next key
  }
}

function showProgress(done, total) {
  const bar = byId("progress");
  Object.assign(bar, { max: total, value: done, hidden: done === total || total < 20 });
}

async function itemsOf(files) {
  const takes = state.model.takes;
  const found = [];
  for (const file of files) {
    if (takes === "image" && (file.type.startsWith("image/") || /\.(hei[cf]|tiff?|ppm)$/i.test(file.name))) {
      found.push(imageItem(file, file.name));
    } else if (takes === "text" && (file.type.startsWith("text/") || file.name.endsWith(".txt"))) {
      found.push(...textItems(await file.text()));
    } else if (file.name.endsWith(".npy")) {
      const rows = readNpy(await file.arrayBuffer());
      found.push(...rows.map((row, i) => newItem({ kind: "row", row, name: `${file.name}, row ${i + 1}` })));
    } else {
      const expected = { image: "images", text: "text files" }[takes] ?? "embeddings in .npy files";
      complain(new Error(`${file.name}: expected ${expected}, which this model takes; it was left out`));
    }
  }
  return found;
}

/** Add files, and teach them where a label is given. */
export const addFiles = (files, label = null) =>
  attempt(async () => addItems(await itemsOf([...files]), label));

const textItems = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean)
  .map((line) => newItem({ kind: "text", text: line, name: line }));

/** Add texts, one per line. */
export const addTexts = (text, label = null) => addItems(textItems(text), label);

/** Open the file chooser; the files are taught where a label is given. */
export function chooseFiles(label = null) {
  targetClass = label;
  byId("files").click();
}

/** Let files be dropped on an element. */
export function makeDropTarget(element, label = null) {
  let depth = 0; // dragenter comes for children, too
  const over = (by) => element.classList.toggle("over", (depth += by) > 0);
  element.addEventListener("dragenter", (event) => { event.preventDefault(); over(1); });
  element.addEventListener("dragleave", () => over(-1));
  element.addEventListener("dragover", (event) => event.preventDefault());
  element.addEventListener("drop", (event) => {
    event.preventDefault();
    event.stopPropagation();
    over(-depth);
    const text = event.dataTransfer.files.length ? "" : event.dataTransfer.getData("text/plain");
    if (text && state.model.takes === "text") attempt(() => addTexts(text, label));
    else addFiles(event.dataTransfer.files, label);
  });
}

/** Show what the model takes. */
export function showInputs() {
  const { takes, encoder, width } = state.model;
  byId("drop-images").hidden = takes === "text";
  byId("drop-texts").hidden = takes !== "text";
  byId("camera-open").hidden = takes !== "image";
  byId("drop-neither").hidden = takes !== null;
  byId("files").accept = takes === "image" ? "image/*,.heic,.heif" : ".npy";
  if (takes === null) {
    byId("drop-title").textContent = "Drop embeddings here";
    byId("choose").lastChild.textContent = "Choose .npy files";
    byId("drop-neither").textContent = `This model takes embeddings${width ? ` of width ${width}` : ""}${
      encoder ? `, made by ${encoder}` : ""}: arrays in .npy files, one row per item.`;
  }
}

/** Wire up the page's inputs. */
export function startInputs() {
  byId("choose").addEventListener("click", () => chooseFiles());
  byId("files").addEventListener("change", async (event) => {
    const files = [...event.target.files];
    const label = targetClass;
    event.target.value = "";
    targetClass = null;
    await addFiles(files, label);
  });
  byId("drop-texts").addEventListener("submit", async (event) => {
    event.preventDefault();
    const text = byId("texts").value;
    byId("texts").value = "";
    await attempt(() => addTexts(text));
  });
  makeDropTarget(document.body);
  document.addEventListener("paste", (event) => {
    if (event.clipboardData.files.length) addFiles(event.clipboardData.files);
  });
}
