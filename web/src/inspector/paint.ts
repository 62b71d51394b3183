// Heat maps on canvas.
export interface Ramp {
  negative: string;
  middle: string;
  positive: string;
}
export const VALUES: Ramp = { negative: "--heat-neg", middle: "--heat-mid", positive: "--heat-pos" };
export const DIFFERENCE: Ramp = { negative: "--diff-neg", middle: "--diff-mid", positive: "--diff-pos" };

const STEPS = 255;

function rgb(name: string): [number, number, number] {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const part = (offset: number): number => parseInt(text.slice(offset, offset + 2), 16);
  return [part(1), part(3), part(5)];
}

/** Colours from one end to the other; small values are lifted so that they can be seen. */
function table(ramp: Ramp): Uint32Array {
  const middle = rgb(ramp.middle);
  const ends = [rgb(ramp.negative), rgb(ramp.positive)] as const;
  const colours = new Uint32Array(2 * STEPS + 1);
  for (let i = -STEPS; i <= STEPS; i++) {
    const end = ends[i < 0 ? 0 : 1];
    const share = (Math.abs(i) / STEPS) ** 0.75;
    const mixed = middle.map((from, k) => Math.round(from + ((end[k] as number) - from) * share)) as [number, number, number];
    colours[i + STEPS] = packed(mixed);
  }
  return colours;
}

function packed([r, g, b]: [number, number, number]): number {
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

export interface Picture {
  values: ArrayLike<number>;
  rows: number;
  columns: number;
  /** How much of the picture the window covers, in cells; the last ones may be cut. */
  height: number;
  width: number;
  scale: number;
  ramp: Ramp;
}

/** Draw a map over the whole canvas; `cursorCell` is the cell of the cursor. */
export function paint(canvas: HTMLCanvasElement, picture: Picture, cursorCell: { x: number; y: number } | null): void {
  const density = devicePixelRatio || 1;
  const width = (canvas.width = Math.max(1, Math.round(canvas.clientWidth * density)));
  const height = (canvas.height = Math.max(1, Math.round(canvas.clientHeight * density)));
  const context = canvas.getContext("2d");
  if (!context || !picture.rows || !picture.columns) return;
  const image = new ImageData(picture.columns, picture.rows);
  const pixels = new Uint32Array(image.data.buffer);
  const colours = table(picture.ramp);
  const bad = packed(rgb("--large-fill"));
  const factor = picture.scale > 0 ? STEPS / picture.scale : 0;
  for (let i = 0; i < pixels.length; i++) {
    const value = picture.values[i] as number;
    pixels[i] = Number.isFinite(value) ? (colours[Math.max(-STEPS, Math.min(STEPS, Math.round(value * factor))) + STEPS] as number) : bad;
  }
  const hidden = document.createElement("canvas");
  hidden.width = picture.columns;
  hidden.height = picture.rows;
  hidden.getContext("2d")?.putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  const cell = { x: width / picture.width, y: height / picture.height };
  context.drawImage(hidden, 0, 0, picture.columns * cell.x, picture.rows * cell.y);
  if (cursorCell) cross(context, (cursorCell.x + 0.5) * cell.x, (cursorCell.y + 0.5) * cell.y, width, height, Math.max(5 * density, Math.min(cell.x, cell.y) / 2));
}

function cross(context: CanvasRenderingContext2D, x: number, y: number, width: number, height: number, box: number): void {
  context.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--ink").trim();
  context.lineWidth = devicePixelRatio || 1;
  context.globalAlpha = 0.55;
  context.beginPath();
  context.moveTo(x, 0);
  context.lineTo(x, y - box);
  context.moveTo(x, y + box);
  context.lineTo(x, height);
  context.moveTo(0, y);
  context.lineTo(x - box, y);
  context.moveTo(x + box, y);
  context.lineTo(width, y);
  context.stroke();
  context.globalAlpha = 1;
  context.strokeRect(x - box, y - box, 2 * box, 2 * box);
}
