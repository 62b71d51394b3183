// Drawing the lanes: modules as boxes, ops as nodes, and the edges between what is shown.
import { cut, font, glyph, token, wide, type Context } from "../canvas";
import { count, scoreText } from "../numbers";
import { metric, stateOf, text } from "../state";
import { linesBetween, linksAcross, placed, rectOf, shownFor, type Lanes, type Rect } from "./layout";
import { member } from "./member";
import { REFERENCE, TARGET, type Item, type Lane, type Link, type Model } from "./model";
import { pooled } from "./scores";

export interface Seen extends Rect {
  item: Item;
  lane: Lane;
  /** An opened module: a box around others. */
  box: boolean;
}

export interface View {
  x: number;
  y: number;
  k: number;
}

/** Below this scale letters are no help. */
const SMALL = 0.42;
/** Fewer cells than this tell nothing of a module. */
const FEWEST = 5;

/** Everything between two heights of the world. */
export function visible(model: Model, lanes: Lanes, top: number, bottom: number): { items: Seen[]; edges: Map<Item, Link[]> } {
  const visibleItems: Seen[] = [];
  const edges = new Map<Item, Link[]>();
  const down = (module: Item, lane: Lane, home: Rect): void => {
    const [first, last] = linesBetween(module, top - home.y, bottom - home.y);
    if (!edges.has(module)) edges.set(module, linksAcross(module, first, last));
    for (let l = first; l <= last; l++)
      for (const item of module.lines[l]?.items ?? []) {
        if (!item.has(lane)) continue;
        const rect = placed(item, home, lane);
        const box = item.children !== null && item.open && item.loaded;
        visibleItems.push({ item, lane, box, ...rect });
        if (box) down(item, lane, rect);
      }
  };
  for (const lane of [TARGET, REFERENCE] as const) down(model.root, lane, { x: lanes.starts[lane], y: 0, w: lanes.width, h: 0 });
  return { items: visibleItems, edges };
}

export function paint(context: Context, lanes: Lanes, view: View, shown: ReturnType<typeof visible>): void {
  for (const one of shown.items) if (one.box) box(context, one, view);
  links(context, lanes, shown.edges);
  context.textBaseline = "alphabetic";
  for (const one of shown.items) if (!one.box) (one.item.rest ? remaining : node)(context, one, view);
}

function round(context: Context, x: number, y: number, w: number, h: number, r: number): void {
  context.beginPath();
  context.roundRect(x, y, w, h, r);
}

function box(context: Context, { item, lane, x, y, w, h }: Seen, view: View): void {
  round(context, x, y, w, h, 7);
  context.fillStyle = token(item.depth % 2 ? "surface-2" : "surface");
  context.fill();
  context.strokeStyle = token("line-2");
  context.lineWidth = 1;
  context.stroke();
  if (view.k < SMALL) return;
  const ops = opsOf(item, lane);
  const small = font(10);
  const room = w - 24 - wide(context, ops, small);
  context.font = small;
  context.fillStyle = token("ink-3");
  context.textAlign = "right";
  context.fillText(ops, x + w - 8, y + 13);
  context.textAlign = "left";
  const bold = font(10, 600);
  const name = cut(context, item.name, bold, room - 12, true);
  context.font = bold;
  context.fillStyle = token("ink-2");
  context.fillText(`▾ ${name}`, x + 8, y + 13);
}

/** Two strokes for all edges: the plain ones, then those that carry damage. */
function links(context: Context, lanes: Lanes, edges: Map<Item, Link[]>): void {
  const plain = new Path2D();
  const hot = new Path2D();
  let any = false;
  for (const [module, list] of edges) {
    const isBold = new Map<string, boolean>();
    const homes = [rectOf(module, TARGET, lanes), rectOf(module, REFERENCE, lanes)] as const;
    for (const link of list) {
      const from = shownFor(link.from);
      const to = shownFor(link.to);
      const key = `${link.lane} ${from.id} ${to.id}`;
      const before = isBold.get(key);
      if (before === true || (before === false && !link.hot)) continue;
      isBold.set(key, link.hot);
      any ||= link.hot;
      route(link.hot ? hot : plain, rectOf(from, link.lane, lanes), rectOf(to, link.lane, lanes), homes[link.lane], from, (link.a + link.b) % 3, stacked(from));
    }
  }
  context.setLineDash([]);
  context.strokeStyle = token("edge");
  context.lineWidth = 1;
  context.stroke(plain);
  if (!any) return;
  context.strokeStyle = token("large-line");
  context.lineWidth = 1.5;
  context.setLineDash([3, 2.4]);
  context.stroke(hot);
  context.setLineDash([]);
}

const stacked = (item: Item): number => (item.children && !item.open ? 3 : 0);

function route(path: Path2D, from: Rect, to: Rect, home: Rect, item: Item, track: number, stack: number): void {
  const [x1, y1] = [from.x + from.w / 2, from.y + from.h + stack];
  const [x2, y2] = [to.x + to.w / 2, to.y];
  const gap = y2 - y1;
  if (gap >= 0 && gap < 44) {
    const half = (y1 + y2) / 2;
    path.moveTo(x1, y1);
    path.bezierCurveTo(x1, half, x2, half, x2, y2);
    return;
  }
  // Far away: along the side of the module, around what lies between.
  const right = item.columns > 1 && item.column === item.columns - 1;
  const sign = right ? 1 : -1;
  const edge = right ? Math.max(from.x + from.w, to.x + to.w) : Math.min(from.x, to.x);
  const wall = right ? home.x + home.w - 4 - track * 3 : home.x + 4 + track * 3;
  const far = right ? Math.max(edge + 6, Math.min(wall, edge + 40)) : Math.min(edge - 6, Math.max(wall, edge - 40));
  const [ax, ay] = [right ? from.x + from.w : from.x, from.y + Math.min(from.h, 28) / 2 + 3];
  const [bx, by] = [right ? to.x + to.w : to.x, to.y + Math.min(to.h, 28) / 2 - 3];
  const bend = Math.min(14, Math.abs(by - ay) / 2) * Math.sign(by - ay || 1);
  path.moveTo(ax, ay);
  path.bezierCurveTo(ax + sign * 8, ay, far, ay, far, ay + bend);
  path.lineTo(far, by - bend);
  path.bezierCurveTo(far, by, bx + sign * 8, by, bx, by);
}

/** How many ops of a group are not here, and how to see them. */
function remaining(context: Context, { item, lane, x, y, w, h }: Seen, view: View): void {
  if (view.k < SMALL) return;
  const [bold, small] = [font(10.5, 600), font(10)];
  context.textAlign = "center";
  context.fillStyle = token("ink-2");
  const label = cut(context, `… ${count(item.ops[lane])} more ops ${item.rest} these`, bold, w);
  context.font = bold;
  context.fillText(label, x + w / 2, y + h / 2 - 2);
  context.fillStyle = token("ink-3");
  const how = cut(context, "click, or filter the list and select one", small, w);
  context.font = small;
  context.fillText(how, x + w / 2, y + h / 2 + 11);
  context.textAlign = "left";
}

function node(context: Context, { item, lane, x, y, w, h }: Seen, view: View): void {
  const state = item.worst >= 0 ? stateOf(item.worst) : null;
  const level = state?.level ?? "none";
  const guilt = state?.guilt ?? "";
  const group = item.children !== null;
  const chosen = lit.selected[lane] === item;
  const under = lit.hovered[lane] === item;
  const lone = !group && !item.rows.length;
  const off = level === "moderate" || level === "large";
  const tinted = off && !group && lane === TARGET && (guilt === "guilty" || guilt === "first-non-finite");
  context.globalAlpha = text.value && !item.isMatch ? 0.4 : 1;
  if (item.members[lane].length) [x, w] = members(context, item, lane, x, y, w, h, view);
  if (group) {
    round(context, x + 3, y + 3, w, h, 4);
    context.fillStyle = token("surface");
    context.fill();
    context.strokeStyle = token("line-2");
    context.lineWidth = 1;
    context.stroke();
  }
  round(context, x, y, w, h, 4);
  if (!lone) {
    context.fillStyle = tinted ? token(`${level}-soft`) : text.value && item.isMatch ? token("accent-soft") : token(under ? "hover" : "surface");
    context.fill();
  }
  context.strokeStyle = chosen ? token("accent") : tinted ? token(`${level}-line`) : text.value && item.isMatch ? token("accent-line") : under ? token("accent-line") : token("line-2");
  context.lineWidth = chosen ? 1.6 : 1;
  if (lone) context.setLineDash([3, 2]);
  context.stroke();
  context.setLineDash([]);
  if (chosen) {
    round(context, x - 3, y - 3, w + 6, h + 6, 6);
    context.strokeStyle = token("accent");
    context.globalAlpha = 0.28;
    context.lineWidth = 3;
    context.stroke();
    context.globalAlpha = 1;
  }
  if (off && lane === TARGET) {
    const passed = guilt === "inherited";
    context.beginPath();
    context.moveTo(x + 2.5, y + (passed ? 3 : 2));
    context.lineTo(x + 2.5, y + h - (passed ? 3 : 2));
    context.strokeStyle = token(passed ? `${level}-line` : `${level}-fill`);
    context.lineWidth = passed ? 2 : 4;
    if (passed) context.setLineDash([2, 2.2]);
    context.stroke();
    context.setLineDash([]);
  }
  const fused = !group && lane === TARGET ? (item.of?.[TARGET].fused[item.ends[TARGET]] ?? 1) : 1;
  if (fused > 1) dotted(context, x, y, w, h);
  const narrow = w < 80;
  if (!lone) glyph(context, level, guilt, x + (narrow ? 11 : 13), y + h / 2, 9);
  if (view.k >= SMALL) words(context, item, lane, { x, y, w, h }, lone, fused);
  context.globalAlpha = 1;
}

function dotted(context: Context, x: number, y: number, w: number, h: number): void {
  round(context, x - 4, y - 3, w + 8, h + 6, 6);
  context.strokeStyle = token("ink-3");
  context.lineWidth = 1;
  context.setLineDash([1.5, 2.5]);
  context.stroke();
  context.setLineDash([]);
}

function words(context: Context, item: Item, lane: Lane, { x, y, w, h }: Rect, lone: boolean, fused: number): void {
  const group = item.children !== null;
  const state = item.worst >= 0 ? stateOf(item.worst) : null;
  const base = y + h / 2 + 3.7;
  let right = x + w - 7;
  context.textAlign = "right";
  // The score belongs to the pair and is written once, on the target.
  const own = font(10.5, group || lit.selected[lane] === item ? 600 : 480);
  // The name comes first: what would cut it is left out.
  const room = w - (w < 80 ? 19 : 22) - 14 - wide(context, nameOf(item, lane), own);
  const style = font(10.5, 560);
  const scoreLabel = !state ? "" : state.bytes || Number.isNaN(state.score) ? state.bytes || (state.bad ? "NaN" : "–") : scoreText(metric.value, state.score, state.bound);
  if (state && lane === TARGET && w > 100 && room > Math.max(40, wide(context, scoreLabel, style))) {
    const off = state.level === "moderate" || state.level === "large";
    context.font = style;
    context.fillStyle = token(off ? `${state.level}-text` : "ink-3");
    context.fillText(scoreLabel, right, base);
    right -= wide(context, scoreLabel, style) + 7;
    if (group && item.depth === 1) {
      const named = wide(context, item.name, font(10.5, 600)) + wide(context, opsOf(item, lane), font(10));
      const cells = pooled(item.cells, Math.max(0, Math.floor((right - x - 40 - named) / 4)));
      if (cells.length >= Math.min(item.cells.length, FEWEST)) {
        right -= cells.length * 4;
        strip(context, cells, right, y + h / 2 - 5.5);
        right -= 6;
      }
    }
  }
  context.textAlign = "left";
  const left = x + (lone ? 8 : w < 80 ? 19 : 22);
  const name = cut(context, nameOf(item, lane), own, right - left, group);
  context.font = own;
  context.fillStyle = token(lone ? "ink-3" : "ink");
  context.fillText(name, left, base);
  const after = left + wide(context, name, own) + 7;
  const aside = lone ? reasonOf(item, lane) : group ? opsOf(item, lane) : fused > 1 ? `fused ${fused}` : kindOf(item, lane) || moduleOf(item);
  if (!aside || right - after < 18) return;
  const small = font(10);
  context.fillStyle = token("ink-3");
  // A piece of a path tells something, a piece of a word does not.
  const path = !lone && !group && fused === 1 && !kindOf(item, lane);
  const short = path ? cut(context, aside, small, right - after, true) : lone ? cut(context, aside, small, right - after) : wide(context, aside, small) <= right - after ? aside : "";
  context.font = small;
  if (short.length > 2) context.fillText(short, after, base);
}

const opsOf = (item: Item, lane: Lane): string => `${count(item.ops[lane])} ops`;

/** At most 24 cells: full height is made there, outlined is passed on, a dash is close. */
function strip(context: Context, cells: readonly number[], x: number, y: number): void {
  cells.forEach((row, i) => {
    const state = stateOf(row);
    const left = x + i * 4;
    if (!state || state.level === "close" || state.level === "none") {
      context.fillStyle = token("none-fill");
      context.fillRect(left, y + 4.5, 3, 2);
    } else if (state.guilt === "inherited") {
      context.strokeStyle = token(`${state.level}-line`);
      context.lineWidth = 1;
      context.strokeRect(left + 0.5, y + 2.5, 2, 6);
    } else {
      context.fillStyle = token(`${state.level}-fill`);
      context.fillRect(left, y, 3, 11);
    }
  });
}

/** Ops that are one with the node's sync point stand before it in one frame. */
function members(context: Context, item: Item, lane: Lane, x: number, y: number, w: number, h: number, view: View): [number, number] {
  const names = item.members[lane].map((entry) => item.of?.[lane].graph.names[entry] ?? "");
  const first = names.includes(member.value) ? [member.value, ...names.filter((name) => name !== member.value)] : names;
  const style = font(10.5, 480);
  const main = Math.min(Math.max(w * 0.5, 80, wide(context, nameOf(item, lane), style) + 32), w * 0.68);
  const share = (pieces: number): number => (w - main - 8 * pieces) / pieces;
  // Names that would all be cut are counted instead; one that was asked for stands first.
  const apart = names.length < 3 && names.every((name) => wide(context, name, style) <= share(names.length) - 12);
  const listed = `${names.length} ops: ${first.join(", ")}`;
  const counted = names.length > 2 || first !== names || wide(context, listed, style) <= share(1) - 12 ? listed : `${names.length} ops`;
  const ghosts = apart || names.length === 1 ? names : [counted];
  const each = share(ghosts.length);
  dotted(context, x, y, w, h);
  ghosts.forEach((name, i) => {
    const left = x + i * (each + 8);
    const isMember = lane === REFERENCE && member.value !== "" && (ghosts.length < names.length ? names : [name]).includes(member.value);
    round(context, left, y, each, h, 4);
    context.strokeStyle = token(isMember ? "accent" : "line-2");
    context.setLineDash(isMember ? [] : [3, 2]);
    context.stroke();
    context.setLineDash([]);
    context.beginPath();
    context.moveTo(left + each, y + h / 2);
    context.lineTo(left + each + 8, y + h / 2);
    context.strokeStyle = token("edge");
    context.stroke();
    if (view.k < SMALL) return;
    context.fillStyle = token("ink-3");
    const short = cut(context, name, style, each - 12);
    context.font = style;
    context.textAlign = "left";
    context.fillText(short, left + 6, y + h / 2 + 3.7);
  });
  return [x + w - main, main];
}

/** What shows the selected sync point and the one under the pointer, on both lanes. */
export const lit = { selected: [null, null] as (Item | null)[], hovered: [null, null] as (Item | null)[] };

export function nameOf(item: Item, lane: Lane): string {
  if (item.rest) return `… ${count(item.ops[lane])} more ops ${item.rest} these`;
  if (item.children) return item.of?.[lane].graph.names[item.ends[lane]] ?? item.name;
  return item.of?.[lane].graph.names[item.ends[lane]] ?? item.name;
}

/** The name of an op and of those that are one with it. */
export function namesIn(item: Item, lane: Lane): string[] {
  const names = item.of?.[lane].graph.names ?? [];
  return [item.ends[lane], ...item.members[lane]].map((entry) => names[entry] ?? "");
}

export function reasonOf(item: Item, lane: Lane): string {
  const columns = item.of?.[lane];
  return columns?.graph.reasons[columns.reasonOf[item.ends[lane]] as number] ?? "";
}

function kindOf(item: Item, lane: Lane): string {
  const kind = item.of?.[lane].graph.kinds[item.ends[lane]];
  return kind === "x" ? "output" : kind === "i" ? "model input" : kind === "s" ? "state" : "";
}

/** The module of an op below the one that it is shown in. */
function moduleOf(item: Item): string {
  const around = item.parent?.path ?? "";
  if (!around) return item.path;
  return item.path.startsWith(`${around}.`) ? item.path.slice(around.length + 1) : item.path === around ? "" : item.path;
}
