/** Calls of the HTTP API. A read goes on at another gateway when its own does not answer; a write never does so silently. */
import { Gateways } from "./gateways";
import type { Problem } from "./types";

export const gateways = new Gateways(location.host);

export class ApiError extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail);
  }
}

export function addressOf(path: string): string {
  return gateways.isElsewhere ? `${location.protocol}//${gateways.current}/api/v1${path}` : `/api/v1${path}`;
}

export async function call<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const isRead = method === "GET";
  for (let attempt = 1; ; attempt += 1) {
    const address = gateways.current;
    let answer: Response;
    try {
      answer = await fetch(addressOf(path), {
        method,
        signal,
        ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } }),
      });
    } catch (error) {
      if (signal?.aborted) throw error;
      gateways.failed(address);
      if (isRead && attempt < gateways.all.length) continue;
      throw new ApiError({
        title: "No answer",
        status: 0,
        detail: `The gateway at ${address} does not answer.`,
        advice: isRead
          ? "The page tries again by itself."
          : "It is not known whether this was carried out: look before you repeat it.",
        retriable: isRead,
      });
    }
    gateways.worked();
    if (answer.ok) return (await answer.json()) as T;
    throw new ApiError(await problemOf(answer));
  }
}

async function problemOf(answer: Response): Promise<Problem> {
  try {
    return (await answer.json()) as Problem;
  } catch {
    return { title: answer.statusText, status: answer.status, detail: `HTTP ${answer.status}` };
  }
}

export const get = <T>(path: string, signal?: AbortSignal) => call<T>("GET", path, undefined, signal);

/** A path with its parts encoded: path`/topics/${name}`. */
export function path(texts: TemplateStringsArray, ...parts: (string | number)[]): string {
  return texts.reduce((all, text, index) => all + encodeURIComponent(String(parts[index - 1])) + text);
}
