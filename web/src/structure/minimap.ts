// All sync points in execution order, from top to bottom, as a strip beside the lanes.
import { severity, token, type Context } from "../canvas";
import { drift, stateOf, states } from "../state";
import { STRIP } from "./layout";

const TOP = 12;

export class Strip {
  private cells: number[] = [];
  private binnedHeight = -1;
  private points = 0;

  reset(): void {
    this.binnedHeight = -1;
  }

  /** The worst sync point of each cell. */
  private bin(height: number): void {
    const all = states.peek();
    this.points = drift.peek()?.points ?? all?.orders.length ?? 0;
    const bins = Math.min(this.points, Math.floor(height / 2));
    this.cells = new Array<number>(bins).fill(-1);
    this.binnedHeight = height;
    if (!all || !bins) return;
    const rank = new Int8Array(bins).fill(-3);
    for (let row = 0; row < all.orders.length; row++) {
      const order = all.orders[row] as number;
      if (order >= this.points) continue;
      const bin = Math.floor((order * bins) / this.points);
      const state = stateOf(row);
      const own = state ? severity(state.level, state.guilt) : -2;
      if (own <= (rank[bin] as number)) continue;
      rank[bin] = own;
      this.cells[bin] = row;
    }
  }

  /** The sync point at a height. */
  rowAt(y: number, height: number): number | null {
    const index = Math.floor(((y - TOP) / (height - 2 * TOP)) * this.cells.length);
    return this.cells[Math.min(Math.max(index, 0), this.cells.length - 1)] ?? null;
  }

  draw(context: Context, width: number, height: number, first: number, last: number): void {
    const tall = height - 2 * TOP;
    if (this.binnedHeight !== tall || this.points !== (drift.peek()?.points ?? this.points)) this.bin(tall);
    const x = width - STRIP + 8;
    context.fillStyle = token("surface");
    context.fillRect(width - STRIP, 0, STRIP, height);
    context.fillStyle = token("line");
    context.fillRect(width - STRIP - 0.5, 0, 1, height);
    const each = tall / Math.max(1, this.cells.length);
    const gap = each > 4 ? 1 : 0;
    this.cells.forEach((row, i) => {
      const state = stateOf(row);
      const y = TOP + i * each;
      const level = state?.level ?? "none";
      if (level === "close" || level === "none") {
        context.fillStyle = token("surface-3");
        context.fillRect(x, y, 12, each - gap);
      } else if (state?.guilt === "inherited") {
        context.strokeStyle = token(`${level}-line`);
        context.lineWidth = 1;
        if (each > 4) context.strokeRect(x + 0.5, y + 0.5, 11, each - 2);
        else {
          context.fillStyle = token(`${level}-line`);
          context.fillRect(x, y, 1, each);
          context.fillRect(x + 11, y, 1, each);
        }
      } else {
        context.fillStyle = token(`${level}-fill`);
        context.fillRect(x - 3, y, 18, Math.max(each - gap, 1));
      }
    });
    if (last < first || !this.points) return;
    const [a, b] = [TOP + (first / this.points) * tall, TOP + (Math.min(last + 1, this.points) / this.points) * tall];
    context.fillStyle = token("accent");
    context.globalAlpha = 0.07;
    context.fillRect(x - 5, a - 1, 22, b - a + 2);
    context.globalAlpha = 1;
    context.strokeStyle = token("accent-line");
    context.lineWidth = 1;
    context.strokeRect(x - 5, a - 1, 22, Math.max(b - a + 2, 4));
  }
}
