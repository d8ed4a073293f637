// Elements of the page.

/** @param {string} id */
export const byId = (id) => document.getElementById(id);

/**
 * An element with attributes, properties that begin with "on", and children.
 * Text is always set as text: labels and names of files are never read as markup.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Node | string | number | null | undefined | false)} children
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** An SVG element with attributes and children. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** An icon of index.html. */
export function icon(name) {
  return svg("svg", { class: "icon", "aria-hidden": "true" }, svg("use", { href: `#i-${name}` }));
}

/** A bar that is filled to a share between 0 and 1. */
export function bar(share, kind = "") {
  const filled = h("span", { class: "bar-filled" });
  filled.style.setProperty("--share", String(Math.min(1, Math.max(0, share ?? 0))));
  return h("span", { class: `bar ${kind}`, "aria-hidden": "true" }, filled);
}

/** "97 %"; three digits near 0 and 1 would say more than is known. */
export function percent(share) {
  if (share === null || share === undefined) return "–";
  const value = 100 * share;
  if (value > 99 && value < 100) return "99 %";
  return `${Math.round(value)} %`;
}

/** "1 photo", "3 photos". */
export const counted = (n, one, several = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : several}`;
