// The camera: photos to predict, or, while a class is held, to teach.
import { post } from "./api.js";
import { classButtons } from "./action.js";
import { byId, percent } from "./dom.js";
import { addItems, imageItem } from "./inputs.js";
import { complain } from "./messages.js";
import { allClasses, on, state } from "./state.js";

const SIDE = 480; // pixels of the shorter side: more than encoders take
const EVERY = 800; // milliseconds between live predictions
const HELD = 250; // milliseconds between frames while a class is held

let stream = null;
let number = 0;
let holding = null;

/** Whether the camera is open. */
export const isOpen = () => stream !== null;

async function frame() {
  const video = byId("video");
  const scale = Math.min(1, SIDE / Math.min(video.videoWidth, video.videoHeight));
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(video.videoWidth * scale);
  canvas.height = Math.round(video.videoHeight * scale);
  canvas.getContext("2d").drawImage(video, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", 0.9));
}

/** Take a photo, and teach it where a label is given. */
export async function capture(label = null) {
  if (!byId("video").videoWidth) return;
  number += 1;
  await addItems([imageItem(await frame(), `camera ${number}`)], label);
}

async function hold(label) {
  const own = {};
  holding = own;
  while (holding === own && isOpen()) {
    await capture(label);
    await new Promise((resolve) => setTimeout(resolve, HELD));
  }
}

const release = () => { holding = null; };

async function live() {
  while (isOpen()) {
    if (state.model.classes && !holding && byId("video").videoWidth && !document.hidden) {
      const form = new FormData();
      form.append("image", await frame(), "image");
      const answer = await post("v1/predict", form).catch(() => null);
      const one = answer?.predictions[0];
      byId("camera-answer").textContent = one ? `${one.label} ${percent(one.probability)}` : "";
    }
    await new Promise((resolve) => setTimeout(resolve, EVERY));
  }
}

async function open() {
  if (!navigator.mediaDevices) {
    complain(new Error("a browser opens the camera for pages on this machine or over https only; "
      + "use https, or choose photos instead"));
    return;
  }
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" }, audio: false });
  } catch (error) {
    complain(new Error(`the camera did not open: ${error.message}; allow it for this page, or choose photos`));
    return;
  }
  byId("video").srcObject = stream;
  await byId("video").play();
  byId("camera").hidden = false;
  byId("camera-capture").focus();
  showClasses();
  live();
}

function close() {
  for (const track of stream?.getTracks() ?? []) track.stop();
  stream = null;
  release();
  byId("video").srcObject = null;
  byId("camera").hidden = true;
  byId("camera-open").focus();
}

function showClasses() {
  if (!isOpen()) return;
  const labels = new Set(allClasses().map((one) => String(one.label)));
  const shown = [...byId("camera-classes").children].map((one) => one.dataset.label);
  if (shown.length === labels.size && shown.every((label) => labels.has(label))) return; // one may be held
  const buttons = classButtons(() => {});
  for (const [i, button] of buttons.entries()) {
    const { label } = allClasses()[i];
    button.addEventListener("pointerdown", () => hold(label));
    button.addEventListener("click", (event) => { if (event.detail === 0) capture(label); }); // by key
  }
  byId("camera-classes").replaceChildren(...buttons);
}

/** Wire up the camera. */
export function startCamera() {
  byId("camera-open").addEventListener("click", open);
  byId("camera-close").addEventListener("click", close);
  byId("camera-capture").addEventListener("click", () => capture());
  for (const name of ["pointerup", "pointercancel", "blur"]) window.addEventListener(name, release);
  on("classes", showClasses);
}
