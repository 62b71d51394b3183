// What the chosen metric says of ops and modules.
import type { MetricInfo } from "../api/source";
import { severity } from "../canvas";
import { stateOf, states, type States } from "../state";
import { TARGET, type Item, type Model } from "./model";

export const CELLS = 24;
let better: MetricInfo["better"] = "higher";

/** How bad each row is, worked out once for a metric: there may be a million of them. */
let severities = new Int8Array(0);
let readFrom: States | null = null;

function read(all: States): void {
  if (readFrom === all) return;
  readFrom = all;
  severities = new Int8Array(all.levels.length);
  const severityByKey = new Map<string, number>();
  for (let row = 0; row < severities.length; row++) {
    const key = (all.levels[row] as string) + (all.guilts[row] as string);
    let rank = severityByKey.get(key);
    if (rank === undefined) {
      const state = stateOf(row);
      severityByKey.set(key, (rank = state ? severity(state.level, state.guilt) : -2));
    }
    severities[row] = rank;
  }
}

/** Smaller is worse; what is not finite is worst of all, what was not measured is not bad. */
function badness(row: number): number {
  const all = readFrom as States;
  if (all.bad[row] === "b") return -Infinity;
  const score = all.scores[row] ?? NaN;
  if (Number.isNaN(score)) return Infinity;
  return better === "higher" ? score : better === "one" ? -Math.abs(score - 1) : -score;
}

function severityOf(row: number): number {
  return severities[row] ?? -2;
}

/** The worse of two sync points; the first if they are alike. */
function worse(a: number, b: number): number {
  if (a < 0) return b;
  if (b < 0) return a;
  const more = severityOf(b) - severityOf(a);
  return more > 0 || (more === 0 && badness(b) < badness(a)) ? b : a;
}

/** Write the states into the tree: worst rows, places in execution order, damaged edges. */
export function scored(model: Model, metric: MetricInfo | undefined): void {
  better = metric?.better ?? "higher";
  const all = states.peek();
  if (!all) return;
  read(all);
  const down = (item: Item): void => {
    item.worst = -1;
    item.first = Infinity;
    item.last = -1;
    item.makes = false;
    if (item.children && item.loaded) {
      for (const child of item.children) {
        down(child);
        if (child.ops[TARGET] || child.rows.length || child.worst >= 0) item.worst = worse(item.worst, child.worst);
        item.first = Math.min(item.first, child.first);
        item.last = Math.max(item.last, child.last);
        item.makes ||= child.makes;
      }
      if (item.depth === 1 && !item.partly) item.cells = cellsOf(item);
      // Of a group that is partly here its own rows tell more than what is in it.
      if (!item.partly) return;
    }
    for (const row of item.rows) {
      item.worst = worse(item.worst, row);
      const order = all.orders[row] as number;
      item.first = Math.min(item.first, order);
      item.last = Math.max(item.last, order);
      item.makes ||= all.guilts[row] === "g" || all.guilts[row] === "f" || all.guilts[row] === "a";
    }
    if (item.children) item.cells = binned(item.rows);
  };
  down(model.root);
  damage(model);
}

function cellsOf(item: Item): number[] {
  const rows: number[] = [];
  const down = (inner: Item): void => {
    for (const row of inner.rows) rows.push(row);
    for (const child of inner.children ?? []) down(child);
  };
  for (const child of item.children as Item[]) down(child);
  return binned(rows);
}

/** At most so many cells, each the worst of its share. */
function binned(rows: readonly number[]): number[] {
  const all = states.peek();
  if (!all) return [];
  const sorted = [...rows].sort((a, b) => (all.orders[a] as number) - (all.orders[b] as number));
  const bins = Math.min(sorted.length, CELLS);
  const cells = new Array<number>(bins).fill(-1);
  sorted.forEach((row, i) => {
    const bin = Math.floor((i * bins) / sorted.length);
    cells[bin] = worse(cells[bin] as number, row);
  });
  return cells;
}

/** Fewer cells, each the worst of its share. */
export function pooled(cells: readonly number[], most: number): readonly number[] {
  if (cells.length <= most) return cells;
  const pooledCells = new Array<number>(most).fill(-1);
  cells.forEach((row, i) => {
    const bin = Math.floor((i * most) / cells.length);
    pooledCells[bin] = worse(pooledCells[bin] as number, row);
  });
  return pooledCells;
}

/** Damage starts where an op is off and runs on, also through what has no verdict. */
function damage(model: Model): void {
  const off = new Map<Item, boolean>();
  for (const leaf of model.leaves) off.set(leaf, severityOf(leaf.worst) > 0);
  for (const module of model.modules) if (module.children && !module.loaded) off.set(module, severityOf(module.worst) > 0);
  // Links come in the order of the op that reads.
  for (const link of model.links) {
    link.hot = link.lane === TARGET && off.get(link.from) === true;
    if (link.hot && severityOf(link.to.worst) < 0) off.set(link.to, true);
  }
}
