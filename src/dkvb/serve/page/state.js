// What the page knows, and who wants to hear of it.

/**
 * @typedef {string | number | boolean} Label
 * @typedef {Object} Item
 * @property {number} key
 * @property {"image" | "text" | "row" | "stored"} kind stored: learned before, its content is not here
 * @property {string} name
 * @property {Blob} [blob] an image
 * @property {Float32Array} [row] an embedding
 * @property {string} [url] address of the image in this page
 * @property {string} [text]
 * @property {string | null} predictionId by which the service remembers the embedding
 * @property {any} prediction what the service said; null: nothing yet
 * @property {{label: Label, id: any} | null} learned
 * @property {"" | "waiting" | "learning" | "failed"} state
 * @property {string} [problem]
 */

export const state = {
  /** @type {any} facts of GET v1/model */ model: null,
  /** @type {{label: Label, count: number | null}[]} in the order of their number keys */ classes: [],
  /** @type {"string" | "number" | "boolean" | null} */ labelKind: null,
  /** @type {Label[]} named here, without examples yet */ planned: [],
  /** @type {Item[]} */ items: [],
  /** @type {Set<Item>} */ selected: new Set(),
  /** @type {Item | null} */ active: null,
  /** @type {"all" | "open" | "learned"} */ filter: "all",
  /** @type {Map<Item, number> | null} position by usefulness */ useful: null,
  /** @type {any} answer of GET v1/quality */ quality: null,
  /** @type {{rows: number, accuracy: number}[] | null} seen while this tab was open */ looCurve: null,
  /** @type {any[]} */ suspects: [],
};

const listeners = new EventTarget();

/**
 * @param {string} topic "model", "classes", "items", "selection", "quality", "suspects"
 * @param {() => void} listener
 */
export const on = (topic, listener) => listeners.addEventListener(topic, listener);

const pending = new Set();

/** Tell listeners, once per frame and topic. */
export function changed(...topics) {
  if (!pending.size) {
    queueMicrotask(() => {
      const now = [...pending];
      pending.clear();
      for (const topic of now) listeners.dispatchEvent(new Event(topic));
    });
  }
  for (const topic of topics) pending.add(topic);
}

/** Classes of the model, then those that were only named. */
export function allClasses() {
  return [...state.classes, ...state.planned.map((label) => ({ label, count: 0 }))];
}

/** Text typed as a label, as the kind that the model's labels have; null where it is not one. */
export function asLabel(text) {
  const given = text.trim();
  if (!given) return null;
  if (state.labelKind === "number") return /^-?\d+$/.test(given) ? Number(given) : null;
  if (state.labelKind === "boolean") return { true: true, false: false }[given.toLowerCase()] ?? null;
  return given;
}

/** What to call an item in a sentence. */
export const itemWord = () => ({ image: "photo", text: "text" })[state.model?.takes] ?? "item";
