// The page: starts its modules, and follows what others teach the model.
import { startAction } from "./action.js";
import { onTokenNeeded } from "./api.js";
import { startCamera } from "./camera.js";
import { startClasses } from "./classes.js";
import { startDetail } from "./detail.js";
import { askToken } from "./dialogs.js";
import { byId, counted, h } from "./dom.js";
import { refresh } from "./following.js";
import { showHistory, startHistory } from "./history.js";
import { showInputs, startInputs } from "./inputs.js";
import { startItems } from "./items.js";
import { startKeys } from "./keys.js";
import { operationText, undo } from "./learning.js";
import { attempt } from "./messages.js";
import { startQuality } from "./quality.js";
import { on, state } from "./state.js";
import { startSuspects } from "./suspects.js";
import { startTheme } from "./theme.js";

const FOLLOW = 4000; // milliseconds between questions whether others changed the model

function showModel() {
  const { name, encoder, rows, classes, undo: last } = state.model;
  document.title = `${name} · dkvb`;
  byId("model-name").textContent = name;
  byId("model-facts").textContent = [encoder, counted(classes, "class", "classes"), counted(rows, "example")]
    .filter(Boolean).join(" · ");
  byId("undo").disabled = !last;
  const text = last ? `Undo the ${operationText(last)}` : "Nothing to undo";
  byId("undo").title = `${text} (U)`;
  byId("undo").setAttribute("aria-label", text);
}

function startTabs() {
  const tabs = [...document.querySelectorAll("[role=tab]")];
  const open = (tab) => {
    for (const one of tabs) {
      one.setAttribute("aria-selected", String(one === tab));
      one.tabIndex = one === tab ? 0 : -1;
      byId(one.getAttribute("aria-controls")).hidden = one !== tab;
    }
    if (tab.id === "tab-history") attempt(showHistory);
  };
  for (const [i, tab] of tabs.entries()) {
    tab.addEventListener("click", () => open(tab));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = tabs[(i + step + tabs.length) % tabs.length];
      next.focus();
      open(next);
    });
  }
}

async function follow() {
  await new Promise((resolve) => setTimeout(resolve, FOLLOW));
  if (!document.hidden) {
    try {
      await refresh();
      document.body.classList.remove("offline");
    } catch {
      document.body.classList.add("offline");
    }
  }
  return follow();
}

async function begin() {
  if ((await attempt(async () => { await refresh(); return true; })) !== true) {
    const again = h("button", { class: "primary", onclick: () => location.reload() }, "Try again");
    byId("loading").replaceChildren(h("p", {}, "The model could not be read."), again);
    return;
  }
  showInputs();
  byId("loading").hidden = true;
  byId("main").hidden = false;
  follow();
}

onTokenNeeded(askToken);
on("model", showModel);
byId("undo").addEventListener("click", undo);
for (const start of [startTheme, startTabs, startInputs, startItems, startAction, startClasses,
  startDetail, startCamera, startQuality, startSuspects, startHistory, startKeys]) start();
begin();
