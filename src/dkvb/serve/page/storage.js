// What the browser keeps for this tab, or for good; a browser may be told to keep nothing.

/** @param {"sessionStorage" | "localStorage"} area @returns {string | null} */
export function stored(area, key) {
  try {
    return window[area].getItem(key);
  } catch {
    return null;
  }
}

/** @param {"sessionStorage" | "localStorage"} area */
export function store(area, key, value) {
  try {
    window[area].setItem(key, value);
  } catch {
    // It is known until the page is closed.
  }
}
