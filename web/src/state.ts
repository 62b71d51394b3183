// The one selection that every pane follows, and how it lies in the address.
import { batch, computed, effect, signal } from "@preact/signals";
import { keep, settle } from "./address";
import { back } from "./api/live";
import { problemOf, type Drift, type Guilt, type Level, type Overview, type Problem, type RowQuery, type Source, type UnmatchedWindow } from "./api/source";
import { floats, integers } from "./decode";

/** Set once, before anything is drawn. */
export let source: Source;
export const overview = signal<Overview | null>(null);
export const failure = signal<Problem | null>(null);

export const metric = signal("psnr");
export const limits = signal("");
export const sort = signal<RowQuery["sort"]>("similarity");
export const descending = signal(false);
export const text = signal("");
export const types = signal<readonly string[]>([]);
export const module = signal("");
export const levels = signal<readonly string[]>([]);
/** First place in execution order and one after the last; null for no brush. */
export const brush = signal<readonly [number, number] | null>(null);
export const grouped = signal(false);
export const open = signal<readonly string[]>([]);
/** The selected sync point, by its number in the table. */
export const selected = signal<number | null>(null);
export type Unmatched = UnmatchedWindow["items"][number];
/** A tensor without partner that is looked at instead. */
export const alone = signal<Unmatched | null>(null);
/** Its name in the address, which is there before the tensor itself; empty where there is none. */
const lone = signal("");
const ASKED_AT_ONCE = 500;
const LONGEST_SEARCH = 500;
/** The one under the pointer, in whatever pane. */
export const hovered = signal<number | null>(null);
export const theme = signal<"light" | "dark">("light");
/** Where the tensor panes stand: axes and index, as the inspector writes them. */
export const slice = signal("");

export const query = computed<RowQuery>(() => ({
  metric: metric.value,
  sort: sort.value,
  descending: descending.value,
  text: text.value,
  types: types.value,
  module: module.value,
  levels: levels.value,
  start: brush.value?.[0] ?? 0,
  stop: brush.value?.[1] ?? 0,
  grouped: grouped.value,
  open: open.value,
}));

/** Every sync point by the chosen metric. */
export interface States {
  metric: string;
  levels: string;
  guilts: string;
  bad: string;
  scores: Float32Array;
  bounds: string;
  introduced: Float32Array | null;
  orders: Uint32Array;
}
export const states = signal<States | null>(null);
export const drift = signal<Drift | null>(null);

const LEVELS: Record<string, Level> = { c: "close", m: "moderate", l: "large", n: "none" };
const GUILTS: Record<string, Guilt> = { g: "guilty", f: "first-non-finite", i: "inherited", a: "amplified", o: "output", u: "unknown" };

/** Level and guilt of a sync point by the chosen metric; null before they are known. */
export function stateOf(row: number): { level: Level; guilt: Guilt; score: number; bound: boolean; bytes: "" | "=" | "≠"; bad: boolean } | null {
  const all = states.value;
  if (!all || row < 0 || row >= all.levels.length) return null;
  return {
    level: LEVELS[all.levels[row] as string] ?? "none",
    guilt: GUILTS[all.guilts[row] as string] ?? "",
    score: all.scores[row] as number,
    bound: all.bounds[row] === "b",
    bytes: all.bounds[row] === "s" ? "=" : all.bounds[row] === "d" ? "≠" : "",
    bad: all.bad[row] === "b",
  };
}

/** Whether there is a filter, and so whether rows are hidden. */
export const filtered = computed(
  () => Boolean(text.value || types.value.length || module.value || levels.value.length || brush.value),
);

export function clearFilters(): void {
  batch(() => {
    text.value = "";
    types.value = [];
    module.value = "";
    levels.value = [];
    brush.value = null;
  });
}

export function select(row: number | null): void {
  batch(() => {
    if (row !== selected.value) slice.value = "";
    selected.value = row;
    leaveAlone();
  });
}

/** A tensor is known by its side and its place there; names of ops may have spaces, and come last. */
function loneName(one: Unmatched): string {
  return `${one.side} ${one.role} ${one.index} ${one.op}`;
}

/** The op in an address that `loneName` made. */
function opInName(name: string): string {
  return name.split(" ").slice(3).join(" ");
}

export function isLookedAt(one: Unmatched): boolean {
  return loneName(one) === lone.value;
}

/** Look no longer at a tensor that has no partner. */
export function leaveAlone(): void {
  batch(() => {
    lone.value = "";
    alone.value = null;
  });
}

/** Look at a tensor that has no partner, and so is no sync point. */
export function lookAt(one: Unmatched): void {
  batch(() => {
    select(null);
    lone.value = loneName(one);
    alone.value = one;
  });
}

/** Ask for the tensor that the address names; where there is none of that name it is forgotten. */
async function seekAlone(name: string): Promise<void> {
  const op = opInName(name).slice(0, LONGEST_SEARCH);
  for (let from = 0, total = 1; from < total; from += ASKED_AT_ONCE) {
    const window = await source.unmatched(op, from, ASKED_AT_ONCE).catch(() => null);
    if (!window || lone.peek() !== name) return;
    const one = window.items.find((each) => loneName(each) === name);
    if (one) {
      alone.value = one;
      return;
    }
    total = window.total;
  }
  // Back must not lead to a name that leads here again.
  settle();
  leaveAlone();
}

/** Take the state out of the address. */
function read(): void {
  const params = new URLSearchParams(location.hash.slice(1));
  const list = (key: string): string[] => params.getAll(key);
  batch(() => {
    metric.value = params.get("metric") ?? "psnr";
    limits.value = params.get("limits") ?? "";
    sort.value = params.get("sort") === "operation" ? "operation" : "similarity";
    descending.value = params.get("descending") === "1";
    text.value = params.get("text") ?? "";
    types.value = list("type");
    module.value = params.get("module") ?? "";
    levels.value = list("level");
    grouped.value = params.get("grouped") === "1";
    open.value = list("open");
    const row = Number(params.get("row") ?? NaN);
    selected.value = Number.isInteger(row) && row >= 0 ? row : null;
    const [from, to] = (params.get("brush") ?? "").split("-").map(Number);
    brush.value = from !== undefined && to !== undefined && to > from ? [from, to] : null;
    slice.value = params.get("slice") ?? "";
    lone.value = selected.value === null ? (params.get("alone") ?? "") : "";
    if (alone.value && !isLookedAt(alone.value)) alone.value = null;
  });
}

function written(): string {
  const params = new URLSearchParams();
  const put = (key: string, value: string | false): void => {
    if (value) params.set(key, value);
  };
  if (selected.value !== null) params.set("row", String(selected.value));
  put("alone", lone.value);
  put("metric", metric.value !== "psnr" && metric.value);
  put("limits", limits.value);
  put("sort", sort.value !== "similarity" && sort.value);
  put("descending", descending.value && "1");
  put("text", text.value);
  for (const type of types.value) params.append("type", type);
  put("module", module.value);
  for (const level of levels.value) params.append("level", level);
  put("grouped", grouped.value && "1");
  for (const name of open.value) params.append("open", name);
  put("brush", brush.value !== null && brush.value.join("-"));
  put("slice", slice.value);
  return params.toString();
}

/** Light or dark, as chosen before or as the system wishes. */
export function startTheme(): void {
  const storedTheme = localStore("theme");
  const wish = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  theme.value = storedTheme === "dark" || storedTheme === "light" ? storedTheme : wish;
  effect(() => {
    document.documentElement.dataset["theme"] = theme.value;
  });
}

/** Begin: read the address, keep it, and load what the metric asks for. */
export function start(from: Source): void {
  source = from;
  startTheme();
  read();
  const hold = (): void => keep(written(), lone.value || String(selected.value));
  addEventListener("popstate", () => {
    settle();
    if (location.hash.slice(1) !== written()) read();
    hold();
  });
  effect(hold);
  effect(() => {
    void back.value;
    if (lone.value && !alone.peek()) void seekAlone(lone.value);
  });
  effect(() => {
    const requestedLimits = limits.value;
    failure.value = null;
    source.overview(requestedLimits).then(
      (loaded) => {
        if (limits.value === requestedLimits) overview.value = loaded;
      },
      (error: unknown) => (failure.value = problemOf(error)),
    );
  });
  effect(() => {
    const requestedMetric = metric.value;
    void [limits.value, back.value];
    // Without an answer the page says that the server is gone, and what is shown stays.
    const quietly = (): void => undefined;
    void source.states(requestedMetric).then((loaded) => {
      if (metric.peek() !== requestedMetric) return;
      states.value = {
        metric: loaded.metric,
        levels: loaded.levels,
        guilts: loaded.guilts,
        bad: loaded.bad,
        scores: floats(loaded.scores),
        bounds: loaded.bounds,
        introduced: loaded.introduced ? floats(loaded.introduced) : null,
        orders: integers(loaded.orders),
      };
    }, quietly);
    void source.drift(requestedMetric).then((loaded) => {
      if (metric.peek() === requestedMetric) drift.value = loaded;
    }, quietly);
  });
}

/** Ask a server that did not answer once more. */
export function tryAgain(): void {
  const requestedLimits = limits.peek();
  source.overview(requestedLimits).then(
    (loaded) => {
      if (limits.peek() !== requestedLimits) return;
      overview.value = loaded;
      failure.value = null;
    },
    () => undefined,
  );
}

export function setTheme(next: "light" | "dark"): void {
  theme.value = next;
  localStore("theme", next);
}

/** What is remembered between visits; a report from a file may have no such place. */
export function localStore(key: string, value?: string): string | null {
  try {
    if (value !== undefined) localStorage.setItem(`syncpoint.${key}`, value);
    return localStorage.getItem(`syncpoint.${key}`);
  } catch {
    return null;
  }
}
