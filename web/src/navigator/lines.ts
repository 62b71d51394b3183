// The list of the navigator: a window of it is here, the rest is with the source.
import { effect, signal } from "@preact/signals";
import { back } from "../api/live";
import type { GroupBrief, RowBrief, RowQuery } from "../api/source";
import { problemOf, type Problem } from "../api/source";
import { grouped, limits, open, query, selected, source } from "../state";

export type Line = RowBrief | GroupBrief;
const PAGE = 200;
const MAX_PAGES = 24;
/** Pages that are asked for ahead of the scrolling. */
const AHEAD = 3;

export const total = signal(0);
export const matching = signal(0);
export const counts = signal<Record<string, number>>({});
/** Grows whenever more lines are here. */
export const arrived = signal(0);
/** The metric that the lines on screen were asked for by: the next ones may be on their way. */
export const shownBy = signal("psnr");
/** Whether a metric has limits; null before a measured row has told. */
export const limited = signal<boolean | null>(null);
export const problem = signal<Problem | null>(null);
const hasLimits = new Map<string, boolean>();

/** Rows that were measured bear the limits of the metric, if it has any; one alone may lack them. */
function learn(metric: string, lines: readonly Line[]): void {
  const key = `${limits.peek()} ${metric}`;
  const measured = lines.filter((line) => line.kind === "row" && line.basis === "values" && !line.bad) as RowBrief[];
  if (measured.length && !hasLimits.get(key)) hasLimits.set(key, measured.some((row) => row.ticks.length > 0));
  limited.value = hasLimits.get(key) ?? null;
}

/** The line that the keyboard is on. */
export const cursor = signal<number | null>(null);
/** Asks the list to bring a line into view. */
export const scrollTarget = signal<{ index: number } | null>(null);

let pages = new Map<number, Line[] | null>();
let currentQuery: RowQuery | null = null;
/** What the lines that are here were asked for by. */
let answered: RowQuery | null = null;

/** The line at a place, or undefined while it is on its way. */
export function lineAt(index: number): Line | undefined {
  return pages.get(Math.floor(index / PAGE))?.[index % PAGE];
}

/** Where the list stood before, which tells the way it is going. */
let before = 0;

/** Make sure that lines from `first` to `last` are here or on their way, and their neighbours: more
 *  of them where the list is going, since an answer may take longer than a turn of the wheel. */
export function need(first: number, last: number): void {
  const [up, down] = first === before ? [1, 1] : first > before ? [1, AHEAD] : [AHEAD, 1];
  before = first;
  const from = Math.max(0, Math.floor(first / PAGE) - up);
  const to = Math.min(Math.floor(Math.max(total.value - 1, 0) / PAGE), Math.floor(last / PAGE) + down);
  // What is in view is asked for first.
  for (let page = Math.floor(first / PAGE); page <= to; page++) void load(page);
  for (let page = Math.floor(first / PAGE) - 1; page >= from; page--) void load(page);
  if (pages.size > MAX_PAGES)
    for (const page of [...pages.keys()]) if (page < from - 4 || page > to + 4) pages.delete(page);
}

async function load(page: number): Promise<void> {
  const now = currentQuery;
  if (!now || pages.has(page)) return;
  pages.set(page, null);
  try {
    const window = await source.rows(now, page * PAGE, PAGE);
    if (currentQuery !== now) return;
    pages.set(page, window.items);
    learn(now.metric, window.items);
    total.value = window.total;
    matching.value = window.matching;
    counts.value = window.counts;
    problem.value = null;
  } catch (error) {
    if (currentQuery !== now) return;
    pages.delete(page);
    problem.value = problemOf(error);
  }
  arrived.value++;
}

/** The line itself, waited for. */
export async function lineSoon(index: number): Promise<Line | undefined> {
  await load(Math.floor(index / PAGE));
  for (let tries = 0; tries < 100 && !lineAt(index); tries++) await new Promise((done) => setTimeout(done, 10));
  return lineAt(index);
}

/** Whether the lines that are here are those of the filter as it is now, or no others will come. */
export function isListed(): boolean {
  return currentQuery === answered || problem.peek() !== null;
}

/** Wait for the lines of the filter as it is now; false where it changed meanwhile or failed. */
export async function listed(): Promise<boolean> {
  const now = currentQuery;
  for (let tries = 0; tries < 500 && currentQuery === now && answered !== now && !problem.peek(); tries++) await new Promise((done) => setTimeout(done, 10));
  return currentQuery === now && answered === now;
}

/** The line that the keyboard is on, else that of the selected row; null where there is neither. */
export async function cursorSoon(): Promise<number | null> {
  const row = selected.peek();
  if (cursor.peek() !== null || row === null || !currentQuery) return cursor.peek();
  try {
    const place = await source.place(currentQuery, row);
    return cursor.peek() ?? place.index;
  } catch {
    return null;
  }
}

export function toggle(group: string): void {
  const now = open.value;
  open.value = now.includes(group) ? now.filter((name) => name !== group) : [...now, group];
}

/** Keep the list in step with the query and the selection. */
export function follow(): void {
  effect(() => {
    const next = query.value;
    void [limits.value, back.value];
    const onlyOpen = currentQuery !== null && sameButOpen(currentQuery, next);
    const regrouped = currentQuery !== null && next.grouped && !currentQuery.grouped;
    currentQuery = next;
    // What is on screen stays until the new lines are here: nothing blinks.
    const fresh = new Map<number, Line[] | null>();
    // The first lines of all are on their way, and not to be asked for twice.
    if (!pages.size) pages.set(0, null);
    void source.rows(next, 0, PAGE).then(
      (window) => {
        if (currentQuery !== next) return;
        fresh.set(0, window.items);
        shownBy.value = next.metric;
        learn(next.metric, window.items);
        pages = fresh;
        answered = next;
        total.value = window.total;
        matching.value = window.matching;
        counts.value = window.counts;
        problem.value = null;
        if (!onlyOpen) cursor.value = null;
        arrived.value++;
        void show(selected.peek(), next, regrouped);
      },
      (error: unknown) => {
        if (currentQuery !== next) return;
        problem.value = problemOf(error);
        arrived.value++;
      },
    );
  });
  effect(() => {
    const row = selected.value;
    if (currentQuery) void show(row, currentQuery, true);
  });
}

function sameButOpen(a: RowQuery, b: RowQuery): boolean {
  return JSON.stringify({ ...a, open: [] }) === JSON.stringify({ ...b, open: [] });
}

/** Bring a row into view; `opening` also opens its group, which closing one must not undo. */
async function show(row: number | null, now: RowQuery, opening: boolean): Promise<void> {
  if (row === null) return;
  const cursorIndex = cursor.peek();
  const line = cursorIndex === null ? undefined : lineAt(cursorIndex);
  if (line?.kind === "row" && line.row === row) {
    scrollTarget.value = { index: cursorIndex as number };
    return;
  }
  try {
    const place = await source.place(now, row);
    if (currentQuery !== now || selected.peek() !== row) return;
    if (grouped.peek() && place.index !== null && !open.peek().includes(place.group)) {
      if (opening) open.value = [...open.peek(), place.group];
      return;
    }
    cursor.value = place.index;
    if (place.index !== null) scrollTarget.value = { index: place.index };
  } catch {
    // The list itself says what is wrong.
  }
}
