// The drift strip: what is drawn, and what the pointer does.
import { effect } from "@preact/signals";
import { cut, fitted, font, glyph, onLarge, severity, token, wide, type Context } from "../canvas";
import { TOP_LEVEL } from "../marks";
import * as state from "../state";
import { listen } from "./pointer";
import { range, scaleOf, ticks, type Scale } from "./scale";

const LEFT = 52;
const RIGHT = 14;
const BOTTOM = 20;
const ROW = 18;
const TOP = 10;
/** Between the line of what is perfect and the greatest that is not. */
const ABOVE = 12;
/** Beyond this many points each pixel column shows its least and greatest. */
const MAX_SINGLE_POINTS = 2000;

interface Placed {
  x: number;
  y: number;
  w: number;
}

export class Pane {
  private width = 0;
  private height = 0;
  private frame = 0;
  points = 0;
  private rows = new Int32Array(0);
  private total = new Float64Array(0);
  /** Where only a bound is known: the score is this at most. */
  private bounds = new Float64Array(0);
  private introduced: Float64Array | null = null;
  private scale: Scale = scaleOf("psnr", "PSNR", "dB", "higher");
  private span: [number, number] = [0, 1];
  /** Whether anything drawn is perfect, and has no finite height. */
  private perfect = false;
  private flags: (Placed & { text: string; row: number; kind: string })[] = [];
  private readonly layer = document.createElement("canvas");
  private drawnKey = "";
  private readings = 0;
  drag: { from: number; to: number } | null = null;
  private stops: (() => void)[] = [];
  /** Whether any row has a value to draw. */
  measured = false;
  drawsIntroduced = false;
  drawsBounds = false;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly changed: () => void,
  ) {
    const observer = new ResizeObserver(() => {
      this.width = canvas.clientWidth;
      this.height = canvas.clientHeight;
      this.draw();
    });
    observer.observe(canvas);
    this.stops.push(() => observer.disconnect());
    this.stops.push(listen(canvas, this));
    Object.assign(canvas, { flags: () => this.flags, xOf: (order: number) => canvas.getBoundingClientRect().left + this.x(order) });
    this.stops.push(
      effect(() => {
        void [state.states.value, state.drift.value, state.overview.value];
        this.read();
        this.schedule();
      }),
      effect(() => {
        void [state.selected.value, state.hovered.value, state.theme.value, state.brush.value];
        this.schedule();
      }),
    );
  }

  stop(): void {
    for (const one of this.stops) one();
    cancelAnimationFrame(this.frame);
  }

  private read(): void {
    const all = state.states.peek();
    const drift = state.drift.peek();
    const info = state.overview.peek()?.metrics.find((one) => one.id === all?.metric);
    if (!all || !drift) return;
    this.readings++;
    this.points = drift.points;
    this.scale = scaleOf(all.metric, info?.title ?? all.metric, info?.unit ?? "", info?.better ?? "higher");
    this.rows = new Int32Array(this.points).fill(-1);
    this.total = new Float64Array(this.points).fill(NaN);
    this.introduced = all.introduced ? new Float64Array(this.points).fill(NaN) : null;
    this.bounds = new Float64Array(this.points).fill(NaN);
    this.drawsIntroduced = this.drawsBounds = false;
    let values = 0;
    for (let row = 0; row < all.orders.length; row++) {
      const order = all.orders[row] as number;
      if (order >= this.points) continue;
      this.rows[order] = row;
      const height = this.scale.of(all.scores[row] as number);
      const shownHeight = all.bad[row] === "b" ? -Infinity : height;
      if (shownHeight > -Infinity) values++;
      if (all.bounds[row] === "b") {
        this.bounds[order] = shownHeight;
        this.drawsBounds = true;
      } else this.total[order] = shownHeight;
      if (!this.introduced || !all.introduced) continue;
      this.introduced[order] = this.scale.of(all.introduced[row] as number);
      if (!Number.isNaN(this.introduced[order] as number)) this.drawsIntroduced = true;
    }
    // What the model was given has values in any case.
    this.measured = values > (drift.groups.find(({ group }) => group === "inputs")?.stop ?? 0);
    const limits = drift.limits.map((limit) => this.scale.of(limit));
    const [lo, hi] = this.reach(limits);
    this.perfect = this.total.includes(Infinity) || this.bounds.includes(Infinity);
    // An op that adds next to nothing must not press the total flat; one that adds much must show.
    const added = this.introduced ? range(this.introduced, this.scale.log)[0] : lo;
    this.span = [this.drawsIntroduced ? Math.min(lo, added) : lo, hi];
    this.changed();
  }

  /** Least and greatest height of what was measured and of the limits. */
  private reach(limits: readonly number[]): [number, number] {
    const extent = range(concatenated(this.total, this.bounds, limits), this.scale.log);
    const finite = (heights: Float64Array): boolean => heights.some(Number.isFinite);
    if (!limits.every(Number.isFinite) || finite(this.total) || finite(this.bounds)) return extent;
    // Where all is perfect the limits alone would fill the strip with what nothing is.
    const apart = Math.max(...limits) - Math.min(...limits);
    return [extent[0] - apart * 0.5, extent[1] + apart];
  }

  // ---- places -----------------------------------------------------------------------------------

  private x(order: number): number {
    return LEFT + ((order + 0.5) / Math.max(1, this.points)) * (this.width - LEFT - RIGHT);
  }

  /** The border before a place. */
  private edge(order: number): number {
    return LEFT + (order / Math.max(1, this.points)) * (this.width - LEFT - RIGHT);
  }

  orderAt(x: number): number {
    return Math.floor(((x - LEFT) / (this.width - LEFT - RIGHT)) * this.points);
  }

  private get floor(): number {
    return this.height - BOTTOM;
  }

  private y(height: number): number {
    const [lo, hi] = this.span;
    if (height === Infinity) return TOP;
    const top = this.perfect ? TOP + ABOVE : TOP;
    const share = (hi - Math.max(lo, Math.min(hi, height))) / (hi - lo);
    return top + share * (this.floor - 5 - top);
  }

  // ---- drawing ------------------------------------------------------------------------------------

  schedule(): void {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  private draw(): void {
    if (!this.width || this.height < 30) return;
    const context = fitted(this.canvas, this.width, this.height);
    if (!context) return;
    context.clearRect(0, 0, this.width, this.height);
    context.textBaseline = "alphabetic";
    if (!this.points) return;
    this.still(context);
    this.stretches(context);
    this.brush(context);
    this.lines(context);
    this.words(context);
  }

  /** What does not follow the pointer is drawn once and kept: there may be a million points. */
  private still(context: Context): void {
    const key = `${this.width} ${this.height} ${devicePixelRatio} ${state.theme.value} ${this.readings}`;
    if (key !== this.drawnKey) {
      this.drawnKey = key;
      this.flags = this.placeFlags(context);
      const layer = fitted(this.layer, this.width, this.height);
      if (!layer) return;
      layer.clearRect(0, 0, this.width, this.height);
      this.ground(layer);
      if (this.measured && this.introduced && this.drawsIntroduced) this.curve(layer, this.introduced, token("reference"), 1.2);
      if (this.measured && this.drawsBounds) this.atMost(layer);
      if (this.measured) this.curve(layer, this.total, token("ink"), 1.5);
      this.stems(layer);
      this.marks(layer);
    }
    context.drawImage(this.layer, 0, 0, this.width, this.height);
  }

  private ground(context: Context): void {
    const { width, floor } = this;
    const wideness = width - LEFT - RIGHT;
    // Without a value there is nothing that limits and ticks could be read against.
    const limits = (this.measured && state.drift.value?.limits) || [];
    const [close, moderate] = limits.map((limit) => this.y(this.scale.of(limit)));
    if (close !== undefined && moderate !== undefined) {
      context.fillStyle = token("moderate-soft");
      context.fillRect(LEFT, close, wideness, moderate - close);
      context.fillStyle = token("large-soft");
      context.fillRect(LEFT, moderate, wideness, floor - moderate);
    }
    context.font = font(9.5);
    context.textAlign = "right";
    const labelHeights: number[] = [];
    const line = (height: number, label: string, strong: boolean): void => {
      const y = this.y(height);
      const room = y <= floor - 2 && labelHeights.every((other) => Math.abs(other - y) >= 11);
      if (!strong && !room) return;
      context.strokeStyle = token(strong ? "line-2" : "line");
      context.setLineDash(strong ? [] : [2, 3]);
      stroke(context, LEFT, y, width - RIGHT, y);
      context.setLineDash([]);
      if (!room) return;
      labelHeights.push(y);
      context.fillStyle = token("ink-3");
      context.fillText(label, LEFT - 6, y + 3.4);
    };
    if (close !== undefined) for (const limit of limits) line(this.scale.of(limit), this.scale.limit(limit), true);
    if (this.measured && this.perfect) line(Infinity, this.scale.perfect, false);
    if (this.measured) for (const tick of ticks(...this.span, (floor - TOP) / 13, this.scale.log)) line(tick, this.scale.text(tick), false);
    context.strokeStyle = token("line-2");
    stroke(context, LEFT, floor, width - RIGHT, floor);
    context.save();
    context.translate(10, floor / 2 + 4);
    context.rotate(-Math.PI / 2);
    context.textAlign = "center";
    context.fillStyle = token("ink-3");
    const fits = wide(context, this.scale.title, font(9.5)) <= floor - 4;
    context.fillText(fits ? this.scale.title : cut(context, this.scale.brief, font(9.5), floor - 4), 0, 0);
    context.restore();
  }

  private stretches(context: Context): void {
    const groups = state.drift.value?.groups ?? [];
    const chosen = state.selected.value === null ? -1 : ((state.states.value?.orders[state.selected.value] as number | undefined) ?? -1);
    context.textAlign = "center";
    let lastLine = -10;
    for (const { group, start, stop } of groups) {
      const [a, b] = [this.edge(start), this.edge(stop)];
      const isChosen = chosen >= start && chosen < stop;
      if (isChosen) {
        context.fillStyle = token("accent");
        context.globalAlpha = 0.07;
        context.fillRect(a, 4, Math.max(b - a, 1), this.height - 6);
        context.globalAlpha = 1;
      }
      if (b - lastLine > 26) {
        context.strokeStyle = token("line");
        stroke(context, b, 8, b, this.height - 4);
        lastLine = b;
      }
      if (b - a < 26) continue;
      const style = font(10, isChosen ? 620 : 430);
      // The beginning of a path may go; other words say nothing once they are cut.
      const room = b - a - 2;
      const label = group ? cut(context, group, style, room, true) : wide(context, TOP_LEVEL, style) <= room ? TOP_LEVEL : "";
      context.font = style;
      context.fillStyle = token(isChosen ? "ink" : "ink-3");
      // Of a path that is cut a letter or two tell nothing.
      if (label.length > (label === group ? 0 : 4)) context.fillText(label, (a + b) / 2, this.height - 6);
    }
    context.strokeStyle = token("none-fill");
    context.lineWidth = 1.5;
    for (const order of state.drift.value?.unmatched ?? []) {
      const x = Math.min(Math.max(this.edge(order), LEFT + 1), this.width - RIGHT - 1);
      stroke(context, x, this.floor - 4, x, this.floor + 1);
    }
    context.lineWidth = 1;
  }

  private brush(context: Context): void {
    const orders = this.drag ? ordered(this.drag.from, this.drag.to) : state.brush.value;
    if (!orders) return;
    const [a, b] = [this.edge(Math.max(0, orders[0])), this.edge(Math.min(this.points, orders[1]))];
    context.fillStyle = token("accent");
    context.globalAlpha = 0.09;
    context.fillRect(a, 4, b - a, this.floor - 4);
    context.globalAlpha = 1;
    context.strokeStyle = token("accent-line");
    context.strokeRect(a, 4, b - a, this.floor - 4);
    context.fillStyle = token("accent-line");
    for (const x of [a, b]) {
      context.beginPath();
      context.roundRect(x - 2, this.floor / 2 - 8, 4, 16, 2);
      context.fill();
    }
  }

  private curve(context: Context, heights: Float64Array, colour: string, width: number): void {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.lineJoin = "round";
    context.beginPath();
    if (this.points > MAX_SINGLE_POINTS) this.columns(context, heights);
    else {
      let pen = false;
      heights.forEach((height, order) => {
        if (Number.isNaN(height) || height === -Infinity) {
          pen = false;
          return;
        }
        const [x, y] = [this.x(order), this.y(height)];
        if (pen) context.lineTo(x, y);
        else {
          // One alone is a dash that can be seen.
          const alone = !((heights[order + 1] ?? NaN) > -Infinity);
          context.moveTo(alone ? x - 2 : x, y);
          if (alone) context.lineTo(x + 2, y);
        }
        pen = true;
      });
    }
    context.stroke();
    context.lineWidth = 1;
  }

  /** Bounds: a dotted line, and where there is room a hook under each that says which way it is open. */
  private atMost(context: Context): void {
    context.setLineDash([2, 2.5]);
    this.curve(context, this.bounds, token("ink-3"), 1.2);
    context.setLineDash([]);
    if ((this.width - LEFT - RIGHT) / this.points < 5) return;
    context.strokeStyle = token("ink-3");
    this.bounds.forEach((height, order) => {
      if (Number.isNaN(height)) return;
      const [x, y] = [this.x(order), this.y(height)];
      stroke(context, x - 2.5, y, x + 2.5, y);
      stroke(context, x, y, x, Math.min(y + 8, this.floor));
    });
  }

  /** Least and greatest of each pixel column, so that no dip is lost. */
  private columns(context: Context, heights: Float64Array): void {
    const columns = Math.max(1, Math.floor(this.width - LEFT - RIGHT));
    let pen = false;
    for (let column = 0; column < columns; column++) {
      const from = Math.floor((column / columns) * this.points);
      const to = Math.max(from + 1, Math.floor(((column + 1) / columns) * this.points));
      let [lo, hi, first, last] = [Infinity, -Infinity, NaN, NaN];
      for (let order = from; order < to; order++) {
        const height = heights[order] as number;
        if (Number.isNaN(height) || height === -Infinity) continue;
        if (Number.isNaN(first)) first = height;
        last = height;
        lo = Math.min(lo, height);
        hi = Math.max(hi, height);
      }
      if (Number.isNaN(first)) {
        pen = false;
        continue;
      }
      const x = LEFT + column + 0.5;
      if (pen) context.lineTo(x, this.y(first));
      else context.moveTo(x, this.y(first));
      context.lineTo(x, this.y(hi));
      context.lineTo(x, this.y(lo));
      context.lineTo(x, this.y(last));
      pen = true;
    }
  }

  private stems(context: Context): void {
    for (const flag of this.flags) {
      const x = this.x(state.states.value?.orders[flag.row] as number);
      const stem = flag.kind === "non-finite";
      context.strokeStyle = token(stem ? "large-line" : "large-fill");
      context.lineWidth = 1.2;
      context.setLineDash(stem ? [2, 2] : []);
      stroke(context, x, flag.w ? flag.y + 8 : 6, x, this.floor - (stem ? 8 : 0));
      context.setLineDash([]);
    }
    context.lineWidth = 1;
  }

  private lines(context: Context): void {
    const vertical = (row: number | null, colour: string, thick: number): void => {
      const order = row === null ? undefined : (state.states.value?.orders[row] as number | undefined);
      if (order === undefined || order >= this.points) return;
      context.strokeStyle = token(colour);
      context.lineWidth = thick;
      stroke(context, this.x(order), 4, this.x(order), this.floor);
    };
    vertical(state.hovered.value, "accent-line", 1);
    vertical(state.selected.value, "accent", 1.4);
    context.lineWidth = 1;
  }

  private marks(context: Context): void {
    const slots = this.points > MAX_SINGLE_POINTS || (this.width - LEFT - RIGHT) / this.points < 3.5;
    const bins = new Map<number, number>();
    // Of guilty ops that fall on one pixel one mark is drawn: nobody could tell two apart.
    const guiltyByPixel = new Map<number, number>();
    for (let order = 0; order < this.points; order++) {
      const row = this.rows[order] as number;
      const rowState = row < 0 ? null : state.stateOf(row);
      if (!rowState || (rowState.level !== "moderate" && rowState.level !== "large")) continue;
      if (rowState.guilt === "guilty" || rowState.guilt === "first-non-finite") guiltyByPixel.set(Math.round(this.x(order)), order);
      else if (!slots) this.mark(context, order, 7.5);
      else {
        const bin = Math.floor(this.x(order) / 5);
        const before = bins.get(bin);
        const own = severity(rowState.level, rowState.guilt);
        const binState = before === undefined ? null : state.stateOf(this.rows[before] as number);
        if (!binState || own > severity(binState.level, binState.guilt)) bins.set(bin, order);
      }
    }
    for (const order of bins.values()) this.mark(context, order, 6.5);
    for (const order of guiltyByPixel.values()) this.mark(context, order, 10);
  }

  private mark(context: Context, order: number, size: number): void {
    const rowState = state.stateOf(this.rows[order] as number);
    const bound = this.bounds[order] as number;
    const height = Number.isNaN(bound) ? (this.total[order] as number) : bound;
    const y = Number.isNaN(height) || height === -Infinity ? this.floor - 5 : this.y(height);
    if (rowState) glyph(context, rowState.level, rowState.guilt, this.x(order), y, size);
  }

  /** Boxes for the words of the flags: beside their stem, never over each other, never outside. */
  private placeFlags(context: Context): typeof this.flags {
    const all = state.states.value;
    const placedFlags: typeof this.flags = [];
    const style = font(10.5, 600);
    const rows = Math.max(1, Math.floor((this.floor - 30) / ROW));
    for (const { row, kind, text } of state.drift.value?.flags ?? []) {
      const order = all?.orders[row];
      if (order === undefined) continue;
      const x = this.x(order);
      const label = cut(context, text, style, this.width - LEFT - RIGHT - 14);
      const w = wide(context, label, style) + 14;
      const place = this.free(placedFlags, x, w, rows);
      placedFlags.push({ row, kind, text: place ? label : "", x: place?.x ?? x, y: place?.y ?? 4, w: place ? w : 0 });
    }
    return placedFlags;
  }

  private free(placedFlags: readonly Placed[], x: number, w: number, rows: number): { x: number; y: number } | null {
    const right = this.width - RIGHT;
    const sides = [x + 6, x - w - 6, Math.min(Math.max(x - w / 2, LEFT), right - w)];
    for (let line = 0; line < Math.min(rows, 3); line++)
      for (const left of sides) {
        if (left < LEFT || left + w > right) continue;
        const y = 4 + line * ROW;
        if (placedFlags.every((one) => !one.w || one.y !== y || left > one.x + one.w + 4 || left + w + 4 < one.x)) return { x: left, y };
      }
    return null;
  }

  private words(context: Context): void {
    context.textAlign = "left";
    for (const { x, y, w, text, kind } of this.flags) {
      if (!w) continue;
      const solid = kind === "guilty";
      context.beginPath();
      context.roundRect(x, y, w, 16, 3);
      context.fillStyle = token(solid ? "large-fill" : "surface");
      context.fill();
      if (!solid) {
        context.strokeStyle = token("large-line");
        context.stroke();
      }
      context.font = font(10.5, 600);
      context.fillStyle = solid ? onLarge() : token("large-text");
      context.fillText(text, x + 7, y + 11.6);
    }
  }

  // ---- pointer --------------------------------------------------------------------------------------

  brushGroup(order: number): void {
    const group = state.drift.peek()?.groups.find(({ start, stop }) => order >= start && order < stop);
    if (group) state.brush.value = [group.start, group.stop];
  }

  click(x: number, y: number): void {
    const flag = this.flags.find((one) => one.w && x >= one.x && x <= one.x + one.w && y >= one.y && y <= one.y + 16);
    if (flag) return state.select(flag.row);
    if (y > this.floor + 1) return this.brushGroup(this.orderAt(x));
    const row = this.nearest(x);
    if (row !== null) state.select(row);
  }

  /** The row at a place; where many share a pixel, the worst of them. */
  nearest(x: number): number | null {
    if (!this.points || x < LEFT - 8 || x > this.width - RIGHT + 8) return null;
    const middle = Math.min(Math.max(this.orderAt(x), 0), this.points - 1);
    const reach = Math.floor((1.5 / (this.width - LEFT - RIGHT)) * this.points);
    let best = middle;
    let worst = -3;
    for (let order = Math.max(0, middle - reach); order <= Math.min(this.points - 1, middle + reach); order++) {
      const rowState = state.stateOf(this.rows[order] as number);
      const own = rowState ? severity(rowState.level, rowState.guilt) : -2;
      if (own > worst || (own === worst && Math.abs(order - middle) < Math.abs(best - middle))) [best, worst] = [order, own];
    }
    const row = this.rows[best] as number;
    return row >= 0 ? row : null;
  }
}

function stroke(context: Context, x1: number, y1: number, x2: number, y2: number): void {
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.stroke();
}

export const ordered = (a: number, b: number): [number, number] => (a <= b ? [a, b + 1] : [b, a + 1]);

function* concatenated(...lists: (Iterable<number> | null)[]): Iterable<number> {
  for (const list of lists) if (list) yield* list;
}
