// Light or dark: as the system has it, until the button is pressed.
import { byId } from "./dom.js";
import { store, stored } from "./storage.js";

const KEY = "dkvb-theme";

/** Wire up the button. */
export function startTheme() {
  const chosen = stored("localStorage", KEY);
  if (chosen) document.documentElement.dataset.theme = chosen;
  byId("theme").addEventListener("click", () => {
    const isDark = (document.documentElement.dataset.theme
      ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    document.documentElement.dataset.theme = isDark ? "light" : "dark";
    store("localStorage", KEY, document.documentElement.dataset.theme);
  });
}
