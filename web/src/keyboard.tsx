// The keyboard, the same in every pane.
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { cursor, cursorSoon, isListed, lineAt, lineSoon, listed, toggle, total } from "./navigator/lines";
import * as state from "./state";

const help = signal(false);

/** What other panes do on a key of theirs; they add to it. */
export const paneKeys = new Map<string, () => void>();

/** Keys that a report from a file has no use for. */
const NEEDS_SERVER = new Set(["[ ]"]);
const KEYS: [string, string][] = [
  ["↑ ↓", "step through the sync points"],
  ["← →", "close and open a group"],
  ["g", "next guilty op"],
  ["/", "search; ↓ or Enter leads to what it found"],
  ["m", "next metric"],
  ["s", "sort by similarity or by operation"],
  ["f", "fit the graphs"],
  ["[ ]", "previous and next slice of the tensor"],
  ["Esc", "clear the brush, then the filters, then the selection"],
  ["F6", "next pane"],
];

export function keys(event: KeyboardEvent): void {
  const focused = event.target as HTMLElement;
  const typing = focused.matches?.("input[type=search], input[type=text], textarea, select");
  if (event.key === "Escape") {
    if (help.value) help.value = false;
    else if (typing) {
      if (focused.id === "filter") state.text.value = "";
      focused.blur();
    }
    else if (state.brush.value) state.brush.value = null;
    else if (state.filtered.value) state.clearFilters();
    else state.select(null);
    return;
  }
  if (event.key === "F6") {
    event.preventDefault();
    nextPane(event.shiftKey ? -1 : 1);
    return;
  }
  if (focused.id === "filter" && (event.key === "ArrowDown" || event.key === "Enter") && !event.isComposing) {
    event.preventDefault();
    void intoList();
    return;
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const sliding = focused.matches?.("input[type=range]");
  if (sliding && event.key.startsWith("Arrow")) return;
  const act = actions[event.key] ?? paneKeys.get(event.key);
  if (!act) return;
  event.preventDefault();
  act();
}

const actions: Record<string, () => void> = {
  ArrowDown: () => void step(1),
  ArrowUp: () => void step(-1),
  ArrowRight: () => openGroup(true),
  ArrowLeft: () => openGroup(false),
  Enter: () => {
    const first = state.overview.value?.findings[0]?.rows[0];
    if (state.selected.value === null && first !== undefined) state.select(first);
  },
  "/": () => document.getElementById("filter")?.focus(),
  m: () => nextMetric(),
  s: () => (state.sort.value = state.sort.value === "similarity" ? "operation" : "similarity"),
  g: () => nextGuilty(),
  "?": () => (help.value = !help.value),
};

/** Steps that wait for the list, one after the other. */
let waiting: Promise<void> = Promise.resolve();

/** One step from the line that the keyboard is on, or from the selected one. */
export async function step(by: number): Promise<void> {
  if (isListed() && (cursor.value !== null || state.selected.value === null)) return move(cursor.value, by);
  // A step in lines that are about to be exchanged would lead anywhere.
  waiting = waiting.then(async () => {
    await listed();
    await move(await cursorSoon(), by);
  });
  return waiting;
}

async function move(from: number | null, by: number): Promise<void> {
  const next = Math.min(Math.max((from ?? (by > 0 ? -1 : total.value)) + by, 0), total.value - 1);
  if (next < 0) return;
  cursor.value = next;
  const line = lineAt(next) ?? (await lineSoon(next));
  if (line?.kind === "row" && cursor.value === next) state.select(line.row);
}

/** From the filter to the first line that it leaves. */
async function intoList(): Promise<void> {
  document.getElementById("list")?.focus();
  if (await listed()) await move(null, 1);
}

function openGroup(opening: boolean): void {
  if (cursor.value === null) return;
  const line = lineAt(cursor.value);
  if (!line || !state.grouped.value) return;
  if (line.kind === "group" ? line.open !== opening : !opening) toggle(line.group);
}

function nextMetric(): void {
  const metrics = state.overview.value?.metrics.filter((metric) => metric.choosable) ?? [];
  const index = metrics.findIndex((metric) => metric.id === state.metric.value);
  const next = metrics[(index + 1) % metrics.length];
  if (next) state.metric.value = next.id;
}

/** The next op in execution order that makes error, round again at the end. */
function nextGuilty(): void {
  const all = state.states.value;
  if (!all) return;
  const guiltyRows = [...all.guilts].flatMap((guilt, row) => (guilt === "g" || guilt === "f" ? [row] : []));
  const rows = [...new Set([...guiltyRows, ...(state.overview.value?.first_divergence ?? [])])];
  const { selected: { value: row } } = state;
  const stops = rows.map((one) => ({ order: all.orders[one] as number, isCurrent: one === row, go: () => state.select(one) }));
  for (const { alone, before, level } of state.overview.value?.findings ?? []) {
    if (alone && level === "large") stops.push({ order: before - 0.5, isCurrent: state.isLookedAt(alone), go: () => state.lookAt(alone) });
  }
  stops.sort((a, b) => a.order - b.order);
  // An op may be named by several findings.
  const index = stops.findLastIndex((stop) => stop.isCurrent);
  const currentOrder = row === null ? -1 : (all.orders[row] as number);
  const next = index >= 0 ? stops[index + 1] : stops.find((stop) => stop.order > currentOrder);
  (next ?? stops[0])?.go();
}

function nextPane(by: number): void {
  const panes = [...document.querySelectorAll<HTMLElement>("nav.pane, section.pane, aside.pane")];
  const index = panes.findIndex((pane) => pane.contains(document.activeElement));
  const pane = panes[(index + by + panes.length) % panes.length];
  const inside = pane?.querySelector<HTMLElement>('[tabindex="0"], button, input, select, canvas');
  inside?.focus();
}

export function Help(): JSX.Element | null {
  if (!help.value) return null;
  return (
    <div class="modal" role="dialog" aria-modal="true" aria-label="Keys" onClick={() => (help.value = false)}>
      <div class="card">
        <h3>Keys</h3>
        <table class="keys">
          <tbody>
            {KEYS.filter(([key]) => state.source.live || !NEEDS_SERVER.has(key)).map(([key, what]) => (
              <tr>
                <td>
                  <kbd>{key}</kbd>
                </td>
                <td>{what}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </div>
  );
}
