// The pane of the two graphs: what is shown of them, and what the pointer does.
import { effect } from "@preact/signals";
import { back } from "../api/live";
import { problemOf, type Problem } from "../api/source";
import { fitted } from "../canvas";
import * as state from "../state";
import { layoutAll, Lanes, rectOf, relayout, shownFor, STRIP, type Rect } from "./layout";
import { member } from "./member";
import { Strip } from "./minimap";
import { build, emptied, fill, REFERENCE, TARGET, unpacked, type Item, type Lane, type Model } from "./model";
import { lit, nameOf, namesIn, paint, reasonOf, visible, type Seen, type View } from "./paint";
import { pairLine } from "./pairs";
import { listen } from "./pointer";
import { scored } from "./scores";

const MIN_ZOOM = 0.12;
const MAX_ZOOM = 2.5;
const READABLE = 0.6;
/** Below this not even the colours of single ops can be told apart. */
const DISCERNIBLE = 0.2;

export class Pane {
  model: Model | null = null;
  readonly lanes = new Lanes();
  readonly view: View = { x: 0, y: 0, k: 1 };
  width = 0;
  height = 0;
  private visibleItems: Seen[] = [];
  private readonly strip = new Strip();
  private frame = 0;
  private motion = 0;
  private stops: (() => void)[] = [];
  /** An op without a sync point that was clicked. */
  private lone: Item | null = null;
  /** What was asked for last. */
  private latestRequest: object | null = null;
  private fittedOnce = false;
  private marked = false;
  private placed = false;
  /** Set where something moved by hand, so that a new size does not fit again. */
  private touched = false;
  /** Set where the whole was asked for, be it too small for words. */
  private overall = false;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly say: (words: string, aloud?: boolean) => void,
    private readonly ready: (model: Model | Problem) => void,
  ) {
    const observer = new ResizeObserver(() => this.resize());
    observer.observe(canvas);
    this.stops.push(() => observer.disconnect());
    this.stops.push(listen(canvas, this));
    // What is drawn where, for those who cannot see the pixels: tests.
    Object.assign(canvas, { shown: () => this.described() });
    this.stops.push(
      effect(() => {
        void [state.overview.value, state.states.value];
        this.rescore();
      }),
      effect(() => {
        const row = state.selected.value;
        this.lone = null;
        if (row !== null) void this.reveal(row);
        this.tell();
        this.schedule();
      }),
      effect(() => {
        const one = state.alone.value;
        if (!one) this.lone = null;
        void this.seek(one);
      }),
      effect(() => {
        void [state.hovered.value, state.theme.value, state.metric.value, state.brush.value, member.value];
        this.schedule();
      }),
      effect(() => {
        this.search(state.text.value);
        this.schedule();
      }),
    );
    this.stops.push(
      effect(() => {
        void back.value;
        if (!this.model) void this.load();
      }),
    );
  }

  stop(): void {
    for (const one of this.stops) one();
    cancelAnimationFrame(this.frame);
    cancelAnimationFrame(this.motion);
  }

  // ---- data ---------------------------------------------------------------------------------

  private async load(): Promise<void> {
    try {
      const [target, reference] = await Promise.all([state.source.graph("target", ""), state.source.graph("reference", "")]);
      this.model = build(unpacked(target), unpacked(reference));
    } catch (error) {
      this.ready(problemOf(error));
      return;
    }
    this.rescore();
    const only = this.model.root.children as Item[];
    // A single module tells nothing while it is closed.
    if (only.length === 1 && only[0]?.children && only[0].loaded) only[0].open = true;
    layoutAll(this.model);
    this.search(state.text.peek());
    this.ready(this.model);
    this.resize();
    const row = state.selected.peek();
    if (row !== null) await this.reveal(row, true);
    else await this.seek(state.alone.peek());
    this.tell();
  }

  private rescore(): void {
    if (!this.model) return;
    const metric = state.overview.peek()?.metrics.find((one) => one.id === state.metric.peek());
    scored(this.model, metric);
    this.strip.reset();
    // Only now is it known what matters.
    if (!this.placed && state.states.peek() && this.width) {
      this.placed = true;
      if (!this.touched) this.fit();
    }
    this.tell();
    this.schedule();
  }

  private search(words: string): void {
    const lowered = words.toLowerCase();
    const down = (item: Item): boolean => {
      let hasMatch = false;
      for (const child of item.children ?? []) hasMatch = down(child) || hasMatch;
      if (!hasMatch && lowered) {
        const names = item.of ? item.ends.map((entry, lane) => item.of?.[lane as Lane].graph.names[entry] ?? "").join("\n") : item.name;
        hasMatch = `${names}\n${item.path}`.toLowerCase().includes(lowered);
      }
      return (item.isMatch = hasMatch);
    };
    if (this.model) down(this.model.root);
  }

  // ---- opening and closing --------------------------------------------------------------------

  async toggle(item: Item): Promise<void> {
    if (!item.children || !item.parent) return;
    const before = rectOf(item, TARGET, this.lanes).y;
    if (item.open) item.open = false;
    else await this.open(item);
    this.laidOut(item);
    // What was clicked stays under the pointer.
    this.view.y += rectOf(item, TARGET, this.lanes).y - before;
    this.touched = true;
    this.schedule();
  }

  private laidOut(item: Item): void {
    relayout(item);
    this.tell();
  }

  private async open(item: Item, row?: number): Promise<void> {
    if (!item.loaded) await this.fetch(item, row);
    if (!item.loaded) return;
    item.open = true;
    const down = (module: Item): void => {
      for (const child of module.children ?? [])
        if (child.children && child.loaded && child.makes) {
          child.open = true;
          down(child);
        }
    };
    // Inside, what makes error is open at once.
    down(item);
    const up = (module: Item): void => {
      for (const child of module.children ?? []) if (child.children && child.open && child.loaded) up(child);
      relayout(module);
    };
    up(item);
  }

  /** The contents of one group of a graph that is too large to be sent whole. */
  private async fetch(item: Item, row?: number): Promise<void> {
    if (!this.model) return;
    const request = (this.latestRequest = { item, row });
    const before = item.parts;
    try {
      const [target, reference] = await Promise.all([state.source.graph("target", item.path, row), state.source.graph("reference", item.path, row)]);
      // Others were put in meanwhile, or others are wished for by now.
      if (item.parts !== before || (before && this.latestRequest !== request)) return;
      if (item.loaded) emptied(this.model, item);
      item.loaded = true;
      fill(this.model, item, unpacked(target), unpacked(reference));
      this.rescore();
      this.search(state.text.peek());
    } catch (error) {
      this.say(`${item.name}: ${problemOf(error).problem}`, true);
    }
  }

  /** Open what holds a sync point, and bring it into view. */
  async reveal(row: number, centred = false): Promise<void> {
    const model = this.model;
    if (!model) return;
    for (let item = model.byRow.get(row); item; item = model.byRow.get(row)) {
      const closed: Item[] = [];
      for (let outerItem: Item | null = item.children ? item : item.parent; outerItem; outerItem = outerItem.parent) if (!outerItem.open) closed.push(outerItem);
      const outer = closed.at(-1);
      if (outer) {
        await this.open(outer, row);
        if (!outer.loaded) return;
      } else if (item.partly) {
        // It is among the ops of its group that are still with the server.
        await this.fetch(item, row);
        await this.open(item);
        if (model.byRow.get(row) === item) break;
      } else break;
    }
    if (state.selected.peek() !== row || !this.width) return;
    const item = model.byRow.get(row);
    if (item) this.bring(rectOf(item, TARGET, this.lanes), centred);
    this.tell();
  }

  /** Bring an op without a sync point into view that was asked for by its name. */
  private async seek(one: state.Unmatched | null): Promise<void> {
    // The selection goes first.
    await null;
    if (one !== state.alone.peek()) return;
    const lane = one?.side === "reference" ? REFERENCE : TARGET;
    const item = one && this.model?.leaves.find((leaf) => leaf.has(lane) && namesIn(leaf, lane).includes(one.op));
    if (item) {
      for (let outer = item.parent; outer; outer = outer.parent) outer.open = true;
      relayout(item.parent as Item);
      this.lone = item;
      member.value = lane === REFERENCE && item.members[lane].length ? one.op : "";
      if (this.width) this.bring(rectOf(item, lane, this.lanes), false);
    } else if (state.selected.peek() === null) member.value = "";
    this.tell();
    this.schedule();
  }

  // ---- moving ---------------------------------------------------------------------------------

  /** All of both graphs, because somebody asked for it. */
  fitAll(): void {
    this.overall = true;
    this.fit();
    const { model, height } = this;
    if (model && model.root.height * DISCERNIBLE > height) this.say("The graphs are too tall to fit; they are fitted to the width.", true);
    else this.tell();
  }

  private fit(): void {
    const { width, height, model } = this;
    if (!model || !width) return;
    const tall = model.root.height;
    const all = height / tall;
    const k = Math.min(1.1, (width - STRIP) / this.lanes.whole, all < (this.overall ? DISCERNIBLE : READABLE) ? 1 : all);
    const target: View = { k, x: (this.lanes.whole - (width - STRIP) / k) / 2, y: (tall - height / k) / 2 };
    if (tall * k > height) {
      // Too tall to be read as a whole: begin with what matters.
      const row = state.selected.peek() ?? this.firstMade();
      const item = row === null ? undefined : model.byRow.get(row);
      const rect = item && rectOf(shownFor(item), TARGET, this.lanes);
      target.y = rect ? rect.y - height / k / 2 : 0;
    }
    this.touched = false;
    this.go(this.clampView(target), this.fittedOnce);
    this.fittedOnce = true;
  }

  private firstMade(): number | null {
    const all = state.states.peek();
    if (!all) return null;
    let best: number | null = null;
    for (let row = 0; row < all.guilts.length; row++)
      if ("gf".includes(all.guilts[row] as string) && (best === null || (all.orders[row] as number) < (all.orders[best] as number))) best = row;
    return best;
  }

  zoom(by: number, x = (this.width - STRIP) / 2, y = this.height / 2): void {
    const { view } = this;
    const k = Math.min(MAX_ZOOM, Math.max(MIN_ZOOM, view.k * by));
    Object.assign(view, this.clampView({ k, x: view.x + x / view.k - x / k, y: view.y + y / view.k - y / k }));
    this.touched = true;
    this.schedule();
  }

  pan(dx: number, dy: number): void {
    cancelAnimationFrame(this.motion);
    Object.assign(this.view, this.clampView({ k: this.view.k, x: this.view.x + dx / this.view.k, y: this.view.y + dy / this.view.k }));
    this.touched = true;
    this.schedule();
  }

  /** Never out of sight of the graph. */
  private clampView(target: View): View {
    const tall = this.model?.root.height ?? 0;
    const [w, h] = [(this.width - STRIP) / target.k, this.height / target.k];
    const clamp = (value: number, size: number, whole: number): number =>
      size >= whole ? Math.min(Math.max(value, whole - size), 0) : Math.min(Math.max(value, -size * 0.4), whole - size * 0.6);
    return { k: target.k, x: clamp(target.x, w, this.lanes.whole), y: clamp(target.y, h, tall) };
  }

  private bring(rect: Rect, centred: boolean): void {
    const { view, width, height } = this;
    const k = Math.max(view.k, READABLE);
    const [w, h] = [(width - STRIP) / k, height / k];
    const target: View = { ...view, k };
    const margin = Math.min(60, h / 4);
    if (k !== view.k || centred || rect.y < view.y + margin || rect.y + rect.h > view.y + h - margin) target.y = rect.y + rect.h / 2 - h / 2;
    if (k !== view.k || rect.x < view.x || rect.x + this.lanes.starts[REFERENCE] + rect.w > view.x + w) target.x = (this.lanes.whole - w) / 2;
    this.touched = true;
    this.go(this.clampView(target), !centred);
  }

  private go(to: View, moving: boolean): void {
    cancelAnimationFrame(this.motion);
    const from = { ...this.view };
    const still = !moving || matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (still || (from.x === to.x && from.y === to.y && from.k === to.k)) {
      Object.assign(this.view, to);
      this.schedule();
      return;
    }
    const start = performance.now();
    const step = (now: number): void => {
      const t = Math.min(1, Math.max(0, (now - start) / 180));
      const e = 1 - (1 - t) ** 3;
      this.view.x = from.x + (to.x - from.x) * e;
      this.view.y = from.y + (to.y - from.y) * e;
      this.view.k = from.k + (to.k - from.k) * e;
      this.draw();
      if (t < 1) this.motion = requestAnimationFrame(step);
    };
    this.motion = requestAnimationFrame(step);
  }

  private resize(): void {
    const { clientWidth, clientHeight } = this.canvas;
    if (!clientWidth || !clientHeight) return;
    const before = this.width;
    this.width = clientWidth;
    this.height = clientHeight;
    this.lanes.resize(clientWidth);
    this.strip.reset();
    if (this.model && !this.touched) this.fit();
    else if (before !== clientWidth) Object.assign(this.view, this.clampView({ ...this.view, x: (this.lanes.whole - (clientWidth - STRIP) / this.view.k) / 2 }));
    this.draw();
  }

  // ---- drawing --------------------------------------------------------------------------------

  schedule(): void {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  draw(): void {
    const { canvas, width, height, model, view } = this;
    if (!width) return;
    const context = fitted(canvas, width, height);
    if (!context) return;
    context.clearRect(0, 0, width, height);
    if (!model) return;
    this.light(model);
    const shown = visible(model, this.lanes, view.y - 8, view.y + height / view.k + 8);
    this.visibleItems = shown.items;
    context.save();
    context.beginPath();
    context.rect(0, 0, width - STRIP, height);
    context.clip();
    context.scale(view.k, view.k);
    context.translate(-view.x, -view.y);
    paint(context, this.lanes, view, shown);
    pairLine(context, model, this.lanes, state.hovered.value, true);
    pairLine(context, model, this.lanes, state.selected.value, false);
    context.restore();
    let [first, last] = [Infinity, -1];
    for (const one of this.visibleItems) {
      if (one.lane !== TARGET || one.box || one.y + one.h < view.y || one.y > view.y + height / view.k) continue;
      first = Math.min(first, one.item.first);
      last = Math.max(last, one.item.last);
    }
    this.strip.draw(context, width, height, first, last);
    if (!this.marked) performance.mark("structure");
    this.marked = true;
  }

  private light(model: Model): void {
    const shownOf = (row: number | null): (Item | null)[] => {
      if (row === null) return [null, null];
      const [target, reference] = [model.byRow.get(row), model.partner.get(row)];
      return [target ? shownFor(target) : null, reference ? shownFor(reference) : null];
    };
    lit.selected = this.lone ? [this.lone, this.lone] : shownOf(state.selected.value);
    lit.hovered = shownOf(state.hovered.value);
  }

  // ---- words for what is drawn ------------------------------------------------------------------

  private tell(): void {
    const { model } = this;
    const row = state.selected.peek();
    const alone = state.alone.peek();
    if (alone) {
      const where = model?.complete ? "has no op in the graphs" : "is not in an open module";
      return this.say(`${alone.op} of the ${alone.side}${this.lone ? `: ${alone.reason}` : ` ${where}`}`, true);
    }
    if (this.lone) {
      const lane = this.lone.ends[TARGET] >= 0 ? TARGET : REFERENCE;
      this.say(`${lane === TARGET ? "Target" : "Reference"} op ${nameOf(this.lone, lane)}: ${reasonOf(this.lone, lane)}`, true);
      return;
    }
    if (!model || row === null) return this.say("");
    const [a, b] = [model.byRow.get(row), model.partner.get(row)];
    if (!a) return this.say("The selected sync point has no op in the graph: it is a parameter.", true);
    const rowState = state.stateOf(row);
    const off = rowState?.guilt ? `, ${rowState.guilt}` : "";
    const module = a.path ? ` in ${a.path}` : "";
    const pair = b ? `; reference ${nameOf(b, REFERENCE)}, paired by ${model.evidence.get(row) ?? ""}` : "";
    this.say(`${nameOf(a, TARGET)}${module}: ${rowState?.level === "none" ? "no verdict" : (rowState?.level ?? "")}${off}${pair}`);
  }

  private described(): object[] {
    const { view } = this;
    const box = this.canvas.getBoundingClientRect();
    return this.visibleItems.map(({ item, lane, box: open, x, y, w, h }) => ({
      name: nameOf(item, lane),
      path: item.path,
      lane: lane === TARGET ? "target" : "reference",
      kind: item.rest ? "rest" : item.children ? (open ? "open" : "closed") : "op",
      reason: !item.children && !item.rows.length ? reasonOf(item, lane) : "",
      members: item.members[lane].length,
      found: item.isMatch,
      selected: lit.selected[lane] === item,
      level: item.worst >= 0 ? state.stateOf(item.worst)?.level : "",
      bytes: item.worst >= 0 ? state.stateOf(item.worst)?.bytes : "",
      x: box.left + (x + w / 2 - view.x) * view.k,
      y: box.top + (y + Math.min(h, 20) / 2 - view.y) * view.k,
    }));
  }

  // ---- pointer and keys ---------------------------------------------------------------------------

  at(event: { clientX: number; clientY: number }): { px: number; py: number; hit: Seen | null } {
    const box = this.canvas.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    const [x, y] = [px / this.view.k + this.view.x, py / this.view.k + this.view.y];
    let hit: Seen | null = null;
    if (px < this.width - STRIP)
      for (const one of this.visibleItems) {
        const h = one.box ? 20 : one.h + 2;
        if (x >= one.x && x <= one.x + one.w && y >= one.y && y <= one.y + h) hit = one;
      }
    return { px, py, hit };
  }

  closeAround(): void {
    const row = state.selected.peek();
    const item = row === null ? undefined : this.model?.byRow.get(row);
    if (!item) return;
    const shown = shownFor(item);
    void this.toggle(shown.children ? shown : (item.parent as Item)).then(() => {
      // Without a pointer it is the selected op, or what holds it, that stays in sight.
      if (state.selected.peek() === row) this.bring(rectOf(shownFor(item), TARGET, this.lanes), false);
    });
  }

  /** Show the ops of a group that come before those shown, or after them. */
  private async further(rest: Item): Promise<void> {
    const group = rest.parent as Item;
    const shown = new Set(group.parts?.[TARGET].rows);
    const isShown = group.rows.map((row) => shown.has(row));
    const row = group.rows[rest.rest === "before" ? isShown.indexOf(true) - 1 : isShown.lastIndexOf(true) + 1];
    if (row === undefined) return this.say("These ops have no sync point and cannot be loaded.", true);
    await this.fetch(group, row);
    await this.open(group);
    const item = this.model?.byRow.get(row);
    if (item) this.bring(rectOf(shownFor(item), TARGET, this.lanes), true);
  }

  jump(event: PointerEvent): void {
    const row = this.strip.rowAt(event.clientY - this.canvas.getBoundingClientRect().top, this.height);
    const item = row === null ? undefined : this.model?.byRow.get(row);
    if (!item) return;
    const rect = rectOf(shownFor(item), TARGET, this.lanes);
    Object.assign(this.view, this.clampView({ ...this.view, y: rect.y + rect.h / 2 - this.height / this.view.k / 2 }));
    this.touched = true;
    this.schedule();
  }

  click(hit: Seen | null): void {
    if (!hit) return;
    const { item } = hit;
    if (item.rest) return void this.further(item);
    if (item.children) return void this.toggle(item);
    if (!item.rows.length) {
      state.leaveAlone();
      this.lone = item;
      this.tell();
      this.schedule();
      return;
    }
    // The one that gives the node its colour; a second click goes to the next of its sync points.
    const index = item.rows.indexOf(state.selected.peek() ?? -1);
    state.select(index < 0 ? item.worst : (item.rows[(index + 1) % item.rows.length] as number));
  }
}
