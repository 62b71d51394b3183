// Heights and places. Only what was opened or closed, and what holds it, is laid out again.
import type { Item, Lane, Link, Model } from "./model";

export const GUTTER = 64;
export const STRIP = 30;
const LEAF = 19;
const GROUP = 28;
const MODULE = 21;
const LANE_WIDTH = 256;
/** Two lines of words. */
const REST = 30;
const HEAD = 20;
const FOOT = 9;
/** Side by side; narrower boxes have no room for a name. */
const COLUMNS = 2;
/** Lines that an edge may cross and still be found by looking around. */
const MAX_SHORT_LINES = 24;

export interface Rect {
  x: number;
  y: number;
  w: number;
  h: number;
}

/** Width of a lane for the width of the pane, and where each begins. */
export class Lanes {
  width = 300;
  starts: [number, number] = [0, 364];
  whole = 664;

  resize(pane: number): void {
    this.width = Math.min(Math.max((pane - STRIP - GUTTER) / 2, 170), 420);
    this.starts = [0, this.width + GUTTER];
    this.whole = 2 * this.width + GUTTER;
  }
}

const isOpen = (item: Item): boolean => item.children !== null && item.open && item.loaded;

const isGroup = (item: Item): boolean => item.members[0].length + item.members[1].length > 0;

/** Lay out everything, from the inside out. */
export function layoutAll(model: Model): void {
  const down = (item: Item): void => {
    if (!isOpen(item)) return;
    for (const child of item.children as Item[]) down(child);
    layout(item);
  };
  down(model.root);
}

/** Lay out a module again, and those around it. */
export function relayout(item: Item): void {
  for (let outer: Item | null = item; outer; outer = outer.parent) if (isOpen(outer)) layout(outer);
}

function layout(module: Item): void {
  const top = module.depth === 0;
  const gap = top ? 14 : 8;
  module.lines = [];
  let y = top ? 10 : HEAD;
  for (const rank of module.ranks) {
    let line: Item[] = [];
    const end = (): void => {
      if (!line.length) return;
      let height = 0;
      line.forEach((item, column) => {
        item.height = heightOf(item);
        item.y = y;
        item.line = module.lines.length;
        item.column = column;
        item.columns = line.length;
        height = Math.max(height, item.height);
      });
      module.lines.push({ items: line, top: y, height });
      y += height + gap;
      line = [];
    };
    const few = module.depth > 3 ? 1 : COLUMNS;
    for (const item of rank) {
      if (isOpen(item) || isGroup(item) || item.rest) {
        end();
        line.push(item);
        end();
      } else {
        line.push(item);
        if (line.length === few) end();
      }
    }
    end();
  }
  module.height = y - gap + (top ? 10 : FOOT);
  index(module);
}

function heightOf(item: Item): number {
  if (item.rest) return REST;
  if (!item.children) return item.depth === 1 ? LEAF + 3 : LEAF;
  if (isOpen(item)) return item.height;
  return item.depth === 1 ? GROUP : MODULE;
}

/** Edges by the line they begin in, and those that run far. */
function index(module: Item): void {
  module.short = [];
  module.long = [];
  const children = module.children as Item[];
  for (const link of module.links) {
    const [lo, hi] = span(children, link);
    if (hi - lo > MAX_SHORT_LINES) module.long.push(link);
    else (module.short[lo] ??= []).push(link);
  }
}

function span(children: readonly Item[], link: Link): [number, number] {
  const a = (children[link.a] as Item).line;
  const b = (children[link.b] as Item).line;
  return a < b ? [a, b] : [b, a];
}

/** The edges kept with a module that cross any of these lines. */
export function linksAcross(module: Item, first: number, last: number): Link[] {
  const children = module.children as Item[];
  const crossing: Link[] = [];
  for (let line = Math.max(0, first - MAX_SHORT_LINES); line <= last; line++)
    for (const link of module.short[line] ?? []) if (span(children, link)[1] >= first) crossing.push(link);
  for (const link of module.long) {
    const [lo, hi] = span(children, link);
    if (lo <= last && hi >= first) crossing.push(link);
  }
  return crossing;
}

/** Lines of an open module between two heights, which are below its own top. */
export function linesBetween(module: Item, top: number, bottom: number): [number, number] {
  const { lines } = module;
  let low = 0;
  let high = lines.length;
  while (low < high) {
    const half = (low + high) >> 1;
    const line = lines[half] as { top: number; height: number };
    if (line.top + line.height < top) low = half + 1;
    else high = half;
  }
  let last = low;
  while (last < lines.length && (lines[last] as { top: number }).top <= bottom) last++;
  return [low, last - 1];
}

/** What stands for an item on screen: itself, or the outermost closed module around it. */
export function shownFor(item: Item): Item {
  let visible = item;
  for (let outer = item.parent; outer; outer = outer.parent) if (!isOpen(outer)) visible = outer;
  return visible;
}

/** Where an item stands inside its module, given where that stands. */
export function placed(item: Item, home: Rect, lane: Lane): Rect {
  const { depth, columns, column } = item;
  const y = home.y + item.y;
  if (isOpen(item)) {
    const inset = depth === 1 ? Math.max(4, (home.w - 330) / 2) : depth < 6 ? 16 : 4;
    return { x: home.x + inset, y, w: home.w - 2 * inset, h: item.height };
  }
  if (item.members[lane].length) return { x: home.x + 16, y, w: home.w - 32, h: item.height };
  if (item.rest) return { x: home.x + 8, y, w: home.w - 16, h: item.height };
  if (columns === 1) {
    const w = Math.min(home.w - (depth < 6 ? 48 : 20), depth === 1 ? LANE_WIDTH : 200);
    return { x: home.x + (home.w - w) / 2, y, w, h: item.height };
  }
  const side = depth === 1 ? Math.max(24, (home.w - LANE_WIDTH) / 2) : 12;
  const w = (home.w - 2 * side - 6 * (columns - 1)) / columns;
  return { x: home.x + side + column * (w + 6), y, w, h: item.height };
}

/** Where an item that is shown stands in the world. */
export function rectOf(item: Item, lane: Lane, lanes: Lanes): Rect {
  if (!item.parent) return { x: lanes.starts[lane], y: 0, w: lanes.width, h: item.height };
  return placed(item, rectOf(item.parent, lane, lanes), lane);
}
