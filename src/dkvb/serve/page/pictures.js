// Pictures that the service keeps of learned images; fetched with the token, so they are blobs.
import { getBlob } from "./api.js";

const kept = new Map(); // addresses by id

/** The address of the picture of a learned image; null where there is none. */
export function keptPicture(id) {
  if (!kept.has(id)) {
    kept.set(id, getBlob(`v1/images/${encodeURIComponent(id)}`).then(URL.createObjectURL, () => null));
  }
  return kept.get(id);
}

/** Let go of a picture. */
export async function dropPicture(id) {
  const url = await kept.get(id);
  kept.delete(id);
  if (url) URL.revokeObjectURL(url);
}
