// Requests to the service, with its token; errors carry the service's message.
import { store, stored } from "./storage.js";

const TOKEN = "dkvb-token";
const RETRIED = new Set([408, 425, 429, 502, 503, 504]);
const PATIENCE = [300, 1000, 3000]; // milliseconds before a request is repeated

let token = stored("sessionStorage", TOKEN);
let askForToken = async () => null;

/** What the service answered in place of a result. */
export class ServiceError extends Error {
  constructor(status, problem) {
    super(problem.detail ?? `the service answered ${status}`);
    this.status = status;
    this.problem = problem;
  }
}

/** @param {(wasWrong: boolean) => Promise<string | null>} ask asks the user for the token */
export function onTokenNeeded(ask) {
  askForToken = ask;
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Random text; crypto.randomUUID is missing where a page comes over plain HTTP. */
function randomKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, "0")).join("");
}

let asking = null; // one dialog for all requests that need the token

async function newToken(used) {
  if (token !== used) return token;
  asking ??= askForToken(used !== null).finally(() => { asking = null; });
  const given = await asking;
  if (given) {
    token = given;
    store("sessionStorage", TOKEN, given);
  }
  return given;
}

async function request(method, path, { query, body, headers = {}, repeat = true } = {}) {
  const url = new URL(path, document.baseURI); // relative: a proxy may put a folder before it
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== undefined && value !== null && value !== false) url.searchParams.append(name, value);
  }
  for (let attempt = 0; ; attempt += 1) {
    const used = token;
    const sent = { ...headers, ...(used && { Authorization: `Bearer ${used}` }) };
    let response;
    try {
      response = await fetch(url, { method, body, headers: sent });
    } catch {
      if (!repeat || attempt >= PATIENCE.length) {
        throw new ServiceError(0, { detail: "the service cannot be reached; is it running?" });
      }
    }
    if (response?.ok) return response;
    if (response?.status === 401 && (await newToken(used))) {
      attempt = -1;
      continue;
    }
    if (response && !(RETRIED.has(response.status) && attempt < PATIENCE.length)) {
      throw new ServiceError(response.status, await response.json().catch(() => ({})));
    }
    await sleep(PATIENCE[attempt]);
  }
}

/** The JSON of a GET. */
export const get = async (path, query) => (await request("GET", path, { query })).json();

/** The content of a GET, as a blob. */
export const getBlob = async (path, query) => (await request("GET", path, { query })).blob();

function prepared(content) {
  if (content instanceof FormData) return { body: content };
  if (content instanceof Blob) return { body: content, headers: { "Content-Type": content.type } };
  return { body: JSON.stringify(content), headers: { "Content-Type": "application/json" } };
}

/** The JSON of a POST that changes nothing. */
export async function post(path, content, query) {
  return (await request("POST", path, { ...prepared(content), query })).json();
}

/** The acknowledgement of a change; repeated with one key, so that it counts once. */
export async function change(path, content, query) {
  const { body, headers } = prepared(content);
  const keyed = { ...headers, "Idempotency-Key": randomKey() };
  return (await request("POST", path, { body, headers: keyed, query })).json();
}
