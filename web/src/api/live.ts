// The data of a running server.
import { Failure, type HeatMapQuery, type Problem, type RowQuery, type RowStates, type RowWindow, type Side, type Source } from "./source";
import { signal } from "@preact/signals";

/** Null while the server answers; else when it was last tried. */
export const serverLostSince = signal<number | null>(null);

/** Grows when the server answers again: what could not be shown is asked for anew. */
export const back = signal(0);

type Params = Record<string, string | number | boolean | readonly (string | number)[] | undefined>;

function search(params: Params): string {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    if (value === undefined || value === "") continue;
    if (typeof value === "object") for (const one of value) query.append(key, String(one));
    else query.set(key, String(value));
  }
  const text = query.toString();
  return text ? `?${text}` : "";
}

/** Ask the server; a refusal is a Failure with its words. */
export async function ask<T>(path: string, params: Params = {}, init: RequestInit = {}): Promise<T> {
  let answer: Response;
  try {
    answer = await fetch(`/api${path}${search(params)}`, { credentials: "same-origin", ...init });
  } catch {
    serverLostSince.value = Date.now();
    throw new Failure({
      problem: `the session at ${location.host} does not answer`,
      cure: "start syncpoint again if it was stopped; what is on screen stays",
    });
  }
  if (serverLostSince.peek() !== null) {
    serverLostSince.value = null;
    back.value++;
  }
  if (answer.ok) return (await answer.json()) as T;
  let problem: Problem;
  try {
    problem = (await answer.json()) as Problem;
  } catch {
    problem = { problem: `the server answered with HTTP status ${answer.status}`, cure: "try again" };
  }
  throw new Failure(problem);
}

function rowParams(query: RowQuery): Params {
  const { types, levels, ...rest } = query;
  return { ...rest, type: types, level: levels };
}

/** A promise, and what keeps it. */
function gate(): [Promise<void>, () => void] {
  let open = (): void => undefined;
  const opened = new Promise<void>((done) => (open = done));
  return [opened, open];
}

/** The comparison called `name` on this server. */
export function liveSource(name: string): Source {
  let limits = "";
  const basePath = `/comparisons/${encodeURIComponent(name)}`;
  const get = <T>(path: string, params: Params = {}): Promise<T> => ask<T>(basePath + path, { ...params, limits });
  // Of a million sync points the server works for seconds. The list comes first, then what is said
  // of the whole and of every row, and the graphs, the longest of it, last.
  const [listLoaded, markListLoaded] = gate();
  const [detailsAllowed, allowDetails] = gate();
  return {
    live: true,
    async overview(chosen) {
      limits = chosen;
      await listLoaded;
      return get("/overview");
    },
    rows: (query, offset, limit) => get<RowWindow>("/rows", { ...rowParams(query), offset, limit }).finally(markListLoaded),
    place: (query, row) => get(`/rows/${row}/place`, rowParams(query)),
    unmatched: (text, offset, limit) => get("/unmatched", { text, offset, limit }),
    async states(metric) {
      await listLoaded;
      return get<RowStates>("/states", { metric }).finally(allowDetails);
    },
    async drift(metric) {
      await listLoaded;
      return get("/drift", { metric });
    },
    row: (row, metric) => get(`/rows/${row}`, { metric }),
    heatmap: (row: number, q: HeatMapQuery) =>
      get(`/rows/${row}/heatmap`, {
        row_axis: q.rowAxis,
        column_axis: q.columnAxis,
        at: q.index,
        window: q.window,
        rows: q.rows,
        columns: q.columns,
      }),
    distribution: (row) => get(`/rows/${row}/distribution`),
    async graph(side: Side, group, row) {
      await detailsAllowed;
      return get(`/graphs/${side}`, { group, row });
    },
    file: (side: Side, file) => get(`/sources/${side}`, { file }),
  };
}
