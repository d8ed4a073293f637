// Light or dark: as the system has it, until the button is pressed.
import { byId } from "./dom.js";

const KEY = "dkvb-theme";

/** Wire up the button. */
export function startTheme() {
  const chosen = localStorage.getItem(KEY);
  if (chosen) document.documentElement.dataset.theme = chosen;
  byId("theme").addEventListener("click", () => {
    const isDark = (document.documentElement.dataset.theme
      ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    document.documentElement.dataset.theme = isDark ? "light" : "dark";
    localStorage.setItem(KEY, document.documentElement.dataset.theme);
  });
}
