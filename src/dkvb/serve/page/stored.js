// Examples that the model learned before, shown again to correct or forget them.
import { get } from "./api.js";
import { newItem } from "./inputs.js";
import { say } from "./messages.js";
import { keptPicture } from "./pictures.js";
import { changed, state } from "./state.js";

const MOST = 200;

/** Show the learned examples of a class among the items. */
export async function showLearned(label) {
  const { rows, total } = await get("v1/rows", { label: String(label), n: MOST });
  const shown = new Set(state.items.map((item) => item.learned?.id));
  const missing = rows.filter((row) => row.id !== null && !shown.has(row.id));
  const items = await Promise.all(missing.map(async ({ id, label: own, image }) => newItem({
    kind: "stored", name: String(id), learned: { label: own, id }, state: "", url: image ? await keptPicture(id) : null,
  })));
  state.items = [...state.items, ...items];
  changed("items");
  if (total > MOST) say(`The first ${MOST} of ${total} examples are shown.`);
}
