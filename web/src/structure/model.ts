// Both graphs as one tree of modules: an op and its partner share a place in it, so that the two
// lanes stand line by line beside each other.
import type { Graph } from "../api/source";
import { integers } from "../decode";
import { layer } from "./layers";

export const TARGET = 0;
export const REFERENCE = 1;
export type Lane = 0 | 1;

/** The columns of one graph, unpacked. */
export interface Columns {
  graph: Graph;
  size: number;
  typeOf: Int32Array;
  moduleOf: Int32Array;
  groupOf: Int32Array;
  reasonOf: Int32Array;
  counts: Int32Array;
  fused: Int32Array;
  into: Int32Array;
  rows: Int32Array;
  rowOf: Int32Array;
  evidenceOf: Int32Array;
  edges: Int32Array;
}

export interface Link {
  lane: Lane;
  from: Item;
  to: Item;
  /** Places among the children of the module that holds both. */
  a: number;
  b: number;
  /** Carries damage; follows the chosen metric. */
  hot: boolean;
}

/** A module or an op, with its partner. */
export class Item {
  parent: Item | null = null;
  depth = 0;
  /** Among the children of its parent, in execution order. */
  place = 0;
  children: Item[] | null = null;
  open = false;
  /** False for a group whose ops are still with the server. */
  loaded = true;
  /** Whether it stands for ops of its group that are still with the server: before or after those shown. */
  rest: "" | "before" | "after" = "";
  /** What a group that came alone is made of. */
  parts: [Columns, Columns] | null = null;
  links: Link[] = [];
  ranks: Item[][] = [];
  /** Entries of the two graphs; -1 where there is none. Modules have none. */
  ends: [number, number] = [-1, -1];
  /** The columns that `ends` speak of. */
  of: [Columns, Columns] | null = null;
  /** Ops without a sync point that are one with that of this one, by lane. */
  members: [number[], number[]] = [[], []];
  ops: [number, number] = [0, 0];
  rows: number[] = [];
  // By the chosen metric: the row that is worst, and the places in execution order.
  worst = -1;
  first = Infinity;
  last = -1;
  cells: number[] = [];
  /** Whether error is made in here. */
  makes = false;
  isMatch = false;
  // Where it stands: below the top of its module, in which line and column.
  y = 0;
  height = 0;
  line = 0;
  column = 0;
  columns = 1;
  lines: Line[] = [];
  short: Link[][] = [];
  long: Link[] = [];

  constructor(
    readonly id: number,
    public name: string,
    public path: string,
  ) {}

  /** Whether it is what the model is given, and no op. */
  get given(): boolean {
    const lane = this.ends[TARGET] >= 0 ? TARGET : REFERENCE;
    const kind = this.of?.[lane].graph.kinds[this.ends[lane]];
    return kind === "i" || this.path === "inputs";
  }

  /** Whether only some of its ops are shown. */
  get partly(): boolean {
    return this.parts?.some(({ graph }) => graph.before + graph.after > 0) ?? false;
  }

  has(lane: Lane): boolean {
    return this.ops[lane] > 0;
  }
}

export interface Line {
  items: Item[];
  top: number;
  height: number;
}

/** Something for each row: a plain array, since of a million rows a map takes a second to fill. */
export class ByRow<T> {
  private readonly all: (T | undefined)[] = [];

  get(row: number): T | undefined {
    return this.all[row];
  }

  set(row: number, value: T): void {
    while (this.all.length < row) this.all.push(undefined);
    this.all[row] = value;
  }
}

export interface Model {
  root: Item;
  leaves: Item[];
  modules: Item[];
  /** The op of every sync point. */
  byRow: ByRow<Item>;
  /** And that of its reference, which stands elsewhere where several share a partner. */
  partner: ByRow<Item>;
  links: Link[];
  evidence: ByRow<string>;
  complete: boolean;
  /** Why each run is not available; "" if it is. */
  missing: [string, string];
}

const ints = (text: string): Int32Array => new Int32Array(integers(text).buffer);

export function unpacked(graph: Graph): Columns {
  return {
    graph,
    size: graph.names.length,
    typeOf: ints(graph.type_of),
    moduleOf: ints(graph.module_of),
    groupOf: ints(graph.group_of),
    reasonOf: ints(graph.reason_of),
    counts: ints(graph.counts),
    fused: ints(graph.fused),
    into: ints(graph.into),
    rows: ints(graph.rows),
    rowOf: ints(graph.row_of),
    evidenceOf: ints(graph.evidence_of),
    edges: ints(graph.edges),
  };
}

let ids = 0;

/** The tree of a whole comparison. */
export function build(target: Columns, reference: Columns): Model {
  const root = new Item(ids++, "", "");
  root.children = [];
  root.open = true;
  const model: Model = {
    root,
    leaves: [],
    modules: [root],
    byRow: new ByRow(),
    partner: new ByRow(),
    links: [],
    evidence: new ByRow(),
    complete: target.graph.complete && reference.graph.complete,
    missing: [target.graph.missing, reference.graph.missing],
  };
  fill(model, root, target, reference);
  return model;
}

/** Put the ops of two graphs, or of one of their groups, under a module. */
export function fill(model: Model, top: Item, target: Columns, reference: Columns): void {
  const columns: [Columns, Columns] = [target, reference];
  const mates = paired(target, reference);
  const items: [(Item | undefined)[], (Item | undefined)[]] = [new Array(target.size), new Array(reference.size)];
  const leaves: Item[] = [];
  const modules = new Map<string, Item>();
  if (top.parent) top.parts = columns;
  rest(top, "before");
  for (const [t, r] of merged(target, reference, mates)) {
    const group = t >= 0 ? word(target.graph.groups, target.groupOf, t) : word(reference.graph.groups, reference.groupOf, r);
    const module = (t >= 0 && word(target.graph.modules, target.moduleOf, t)) || (r >= 0 && word(reference.graph.modules, reference.moduleOf, r)) || "";
    const [own, entry] = t >= 0 ? [target, t] : [reference, r];
    const leaf = new Item(ids++, own.graph.names[entry] as string, module);
    leaf.ends = [t, r];
    leaf.of = columns;
    if (own.graph.kinds[entry] === "g") {
      leaf.children = [];
      leaf.loaded = false;
      leaf.path = group;
      model.modules.push(leaf);
    }
    leaf.ops = [t >= 0 ? (target.counts[t] as number) : 0, r >= 0 ? (reference.counts[r] as number) : 0];
    leaves.push(leaf);
    if (t >= 0) items[TARGET][t] = leaf;
    if (r >= 0) items[REFERENCE][r] = leaf;
    // What no module made stands on the top level, beside the modules.
    const home = top.parent || !leaf.loaded || !group ? top : moduleAt(model, modules, top, group, group);
    adopt(leaf.loaded ? nested(model, modules, home, group, module) : home, leaf);
  }
  for (const lane of [TARGET, REFERENCE] as const)
    for (let entry = 0; entry < columns[lane].size; entry++) {
      const into = columns[lane].into[entry] as number;
      const leaf = into >= 0 ? items[lane][into] : undefined;
      if (!leaf || items[lane][entry]) continue;
      leaf.members[lane].push(entry);
      items[lane][entry] = leaf;
    }
  rest(top, "after");
  compress(top);
  settle(top);
  for (const lane of [TARGET, REFERENCE] as const) rowsOf(model, columns[lane], items[lane], lane);
  for (const leaf of leaves) if (leaf.loaded) model.leaves.push(leaf);
  const newLinks = linked(columns, items);
  for (const link of newLinks) model.links.push(link);
  for (const module of model.modules) if (module.children && !module.ranks.length) layer(module, model.links.length > 0);
  model.modules = model.modules.filter((module) => module.parent !== null || module === model.root);
}

/** One line for the ops of a group that come before those sent, or after them. */
function rest(group: Item, which: "before" | "after"): void {
  const ops = (group.parts ?? []).map(({ graph }) => graph[which]);
  if (!ops.some((many) => many > 0)) return;
  const item = new Item(ids++, "", group.path);
  item.rest = which;
  item.ops = ops as [number, number];
  adopt(group, item);
}

/** Take the ops of a group out again, so that others of its ops may be put in. */
export function emptied(model: Model, group: Item): void {
  const inside = (item: Item | undefined): boolean => {
    for (let outer = item?.parent ?? null; outer; outer = outer.parent) if (outer === group) return true;
    return false;
  };
  for (const [lane, columns] of (group.parts ?? []).entries())
    for (const row of columns.rows)
      for (const itemByRow of lane === TARGET ? [model.byRow] : [model.partner, model.byRow]) if (inside(itemByRow.get(row))) itemByRow.set(row, group);
  model.leaves = model.leaves.filter((item) => !inside(item));
  model.links = model.links.filter(({ from }) => !inside(from));
  model.modules = model.modules.filter((item) => !inside(item));
  group.children = [];
  group.links = [];
  group.ranks = [];
  group.lines = [];
  group.loaded = false;
}

const word = (words: readonly string[], places: Int32Array, index: number): string => words[places[index] as number] ?? "";

/** The entry of the reference that shares the place of each target's, or -1. */
function paired(target: Columns, reference: Columns): Int32Array {
  const mates = new Int32Array(target.size).fill(-1);
  const isPaired = new Uint8Array(reference.size);
  // Groups have the same name on both sides.
  const groups = new Map<string, number>();
  for (let r = 0; r < reference.size; r++) if (reference.graph.kinds[r] === "g") groups.set(word(reference.graph.groups, reference.groupOf, r), r);
  for (let t = 0; t < target.size; t++) {
    const r = target.graph.kinds[t] === "g" ? groups.get(word(target.graph.groups, target.groupOf, t)) : undefined;
    if (r === undefined) continue;
    mates[t] = r;
    isPaired[r] = 1;
  }
  const byRow = new ByRow<number>();
  for (let i = 0; i < reference.rows.length; i++) byRow.set(reference.rows[i] as number, reference.rowOf[i] as number);
  for (let i = 0; i < target.rows.length; i++) {
    const t = target.rowOf[i] as number;
    const r = byRow.get(target.rows[i] as number);
    if (r === undefined || mates[t] !== -1 || isPaired[r] || (target.graph.kinds[t] === "g") !== (reference.graph.kinds[r] === "g")) continue;
    mates[t] = r;
    isPaired[r] = 1;
  }
  return mates;
}

/** Both graphs as one list: the target's order, each lone reference op after the one before it. */
function merged(target: Columns, reference: Columns, mates: Int32Array): [number, number][] {
  const mateOf = new Int32Array(reference.size).fill(-1);
  mates.forEach((r, t) => {
    if (r >= 0) mateOf[r] = t;
  });
  const after = new Map<number, number[]>();
  let anchor = -1;
  for (let r = 0; r < reference.size; r++) {
    if ((mateOf[r] as number) >= 0) anchor = mateOf[r] as number;
    else if ((reference.into[r] as number) < 0) {
      const list = after.get(anchor);
      if (list) list.push(r);
      else after.set(anchor, [r]);
    }
  }
  const pairs: [number, number][] = (after.get(-1) ?? []).map((r) => [-1, r]);
  for (let t = 0; t < target.size; t++) {
    if ((target.into[t] as number) < 0) pairs.push([t, mates[t] as number]);
    for (const r of after.get(t) ?? []) pairs.push([-1, r]);
  }
  return pairs;
}

function moduleAt(model: Model, modules: Map<string, Item>, parent: Item, path: string, name: string): Item {
  const key = `${parent.id} ${path}`;
  let module = modules.get(key);
  if (!module) {
    module = new Item(ids++, name, path);
    module.children = [];
    modules.set(key, module);
    model.modules.push(module);
    adopt(parent, module);
  }
  return module;
}

/** The innermost module of an op inside its group. */
function nested(model: Model, modules: Map<string, Item>, home: Item, group: string, module: string): Item {
  if (!module.startsWith(`${group}.`) && group !== "") return home;
  let inner = home;
  let path = group;
  for (const name of module.slice(group ? group.length + 1 : 0).split(".").slice(0, 12)) {
    if (!name) continue;
    path = path ? `${path}.${name}` : name;
    inner = moduleAt(model, modules, inner, path, name);
  }
  return inner;
}

function adopt(parent: Item, child: Item): void {
  child.parent = parent;
  (parent.children as Item[]).push(child);
}

/** A module of one op is that op; one that holds a single module is one with it. */
function compress(item: Item): void {
  const children = item.children as Item[];
  children.forEach((child, index) => {
    let now = child;
    while (now.children?.length === 1 && now.loaded) {
      const only = now.children[0] as Item;
      if (only.children && only.loaded) only.name = `${now.name}.${only.name}`;
      now.parent = null;
      now = only;
    }
    children[index] = now;
    now.parent = item;
    if (now.children) compress(now);
  });
}

/** Depth, place and number of ops, from the top down. */
function settle(item: Item): void {
  const children = item.children as Item[];
  if (item.loaded && children.length) item.ops = [0, 0];
  children.forEach((child, index) => {
    child.depth = item.depth + 1;
    child.place = index;
    if (child.children) settle(child);
    for (const lane of [TARGET, REFERENCE] as const) item.ops[lane] += child.ops[lane] + child.members[lane].length;
  });
}

function rowsOf(model: Model, columns: Columns, items: (Item | undefined)[], lane: Lane): void {
  for (let i = 0; i < columns.rows.length; i++) {
    const row = columns.rows[i] as number;
    const item = items[columns.rowOf[i] as number];
    if (!item) continue;
    if (lane === TARGET) {
      item.rows.push(row);
      model.byRow.set(row, item);
      model.evidence.set(row, columns.graph.evidence[columns.evidenceOf[i] as number] ?? "");
    } else {
      model.partner.set(row, item);
      if (!model.byRow.get(row)) model.byRow.set(row, item);
      // A second reference op of one target op has no place beside it.
      if (item.ends[TARGET] < 0) item.rows.push(row);
    }
  }
}

/** Every edge, kept with the innermost module that holds both of its ends. */
function linked(columns: [Columns, Columns], items: [(Item | undefined)[], (Item | undefined)[]]): Link[] {
  const links: Link[] = [];
  for (const lane of [TARGET, REFERENCE] as const) {
    const { edges } = columns[lane];
    for (let i = 0; i + 1 < edges.length; i += 2) {
      const from = items[lane][edges[i] as number];
      const to = items[lane][edges[i + 1] as number];
      if (!from || !to || from === to) continue;
      let [a, b] = [from, to];
      while (a.depth > b.depth) a = a.parent as Item;
      while (b.depth > a.depth) b = b.parent as Item;
      while (a.parent !== b.parent) [a, b] = [a.parent as Item, b.parent as Item];
      const link: Link = { lane, from, to, a: a.place, b: b.place, hot: false };
      (a.parent as Item).links.push(link);
      links.push(link);
    }
  }
  return links;
}
