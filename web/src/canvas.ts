// Drawing on canvas in the colours and marks of the page.
import type { Guilt, Level } from "./api/source";
import { isHollow } from "./marks";

export type Context = CanvasRenderingContext2D;

const NAMES = [
  ...["surface", "surface-2", "surface-3", "hover", "line", "line-2", "edge", "ink", "ink-2", "ink-3"],
  ...["accent", "accent-line", "accent-soft", "target", "reference", "font"],
  ...["close", "moderate", "large", "none"].flatMap((level) => [`${level}-text`, `${level}-fill`, `${level}-soft`, `${level}-line`]),
] as const;

let shown = "";
const colours = new Map<string, string>();

/** A token of the page by its name, read again when the theme changes. */
export function token(name: string): string {
  const theme = document.documentElement.dataset["theme"] ?? "";
  if (theme !== shown || !colours.size) {
    shown = theme;
    const style = getComputedStyle(document.documentElement);
    for (const one of NAMES) colours.set(one, style.getPropertyValue(`--${one}`).trim());
  }
  return colours.get(name) ?? "";
}

export const isDark = (): boolean => document.documentElement.dataset["theme"] === "dark";

/** Words on a ground of a verdict's fill. */
export const onLarge = (): string => (isDark() ? "#1a0706" : "#fff");

export function font(size: number, weight = 430): string {
  return `${weight} ${size}px ${token("font")}`;
}

const widths = new Map<string, number>();

/** How wide a text is; asked for the same words in every frame. */
export function wide(context: Context, text: string, style: string): number {
  const key = `${style}|${text}`;
  let width = widths.get(key);
  if (width === undefined) {
    if (widths.size > 20_000) widths.clear();
    context.font = style;
    width = context.measureText(text).width;
    widths.set(key, width);
  }
  return width;
}

const cuts = new Map<string, string>();

/** A text that fits: its end goes, or its beginning where it is a path. */
export function cut(context: Context, text: string, style: string, room: number, fromStart = false): string {
  if (wide(context, text, style) <= room) return text;
  const key = `${style}|${Math.floor(room)}|${fromStart}|${text}`;
  const cached = cuts.get(key);
  if (cached !== undefined) return cached;
  let low = 0;
  let high = text.length;
  const piece = (n: number): string => (fromStart ? `…${text.slice(text.length - n)}` : `${text.slice(0, n)}…`);
  context.font = style;
  while (low < high) {
    const half = (low + high + 1) >> 1;
    if (context.measureText(piece(half)).width <= room) low = half;
    else high = half - 1;
  }
  const shortened = low ? piece(whole(text, low, fromStart)) : "";
  if (cuts.size > 20_000) cuts.clear();
  cuts.set(key, shortened);
  return shortened;
}

/** Of the letters that fit, those that end with a word, if that leaves most of them. */
function whole(text: string, fitting: number, fromStart: boolean): number {
  const fittingText = fromStart ? text.slice(text.length - fitting) : text.slice(0, fitting);
  const next = fromStart ? text[text.length - fitting - 1] : text[fitting];
  if (next !== undefined && /[\s._/,:]/.test(next)) return fitting;
  const breakIndex = fromStart ? fittingText.search(/[\s._/,:]/) + 1 : fittingText.search(/[\s._/,:][^\s._/,:]*$/);
  const wholeLength = fromStart ? fitting - breakIndex : breakIndex;
  return breakIndex > 0 && wholeLength >= fitting / 2 ? wholeLength : fitting;
}

/** The mark of a verdict around a point, as `Glyph` draws it. */
export function glyph(context: Context, level: Level, guilt: Guilt, x: number, y: number, size = 10): void {
  const unit = size / 10;
  const hollow = isHollow(level, guilt);
  context.save();
  context.translate(x - size / 2, y - size / 2);
  context.scale(unit, unit);
  context.setLineDash([]);
  context.beginPath();
  if (guilt === "amplified") {
    context.strokeStyle = token("large-line");
    context.lineWidth = 1.5;
    context.strokeRect(1.4, 1.4, 7.2, 7.2);
    context.moveTo(3.4, 6.6);
    context.lineTo(6.6, 3.4);
    context.moveTo(4.2, 3.4);
    context.lineTo(6.6, 3.4);
    context.lineTo(6.6, 5.8);
    context.lineWidth = 1.2;
    context.stroke();
  } else if (level === "none") {
    context.strokeStyle = token("none-line");
    context.lineWidth = 1.8;
    context.moveTo(2, 5);
    context.lineTo(8, 5);
    context.stroke();
  } else {
    if (level === "close") context.arc(5, 5, 3.7, 0, 7);
    else if (level === "moderate") {
      context.moveTo(5, 1.2);
      context.lineTo(9.2, 8.8);
      context.lineTo(0.8, 8.8);
      context.closePath();
    } else if (hollow) context.rect(1.6, 1.6, 6.8, 6.8);
    else context.roundRect(1, 1, 8, 8, 1);
    context.fillStyle = token(hollow ? "surface" : `${level}-fill`);
    context.fill();
    if (hollow || level === "moderate") {
      context.strokeStyle = token(`${level}-line`);
      context.lineWidth = hollow ? 1.7 : 1;
      context.lineJoin = "round";
      context.stroke();
    }
  }
  context.restore();
}

/** Fit a canvas to its place on the screen; its context in CSS pixels. */
export function fitted(canvas: HTMLCanvasElement, width: number, height: number): Context | null {
  const ratio = devicePixelRatio || 1;
  const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  const context = canvas.getContext("2d");
  context?.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/** How much worse one sync point is than another: by level, then guilt, then the metric. */
export function severity(level: Level, guilt: Guilt): number {
  if (level === "none") return -1;
  const base = level === "large" ? 4 : level === "moderate" ? 2 : 0;
  return base - (base && guilt === "inherited" ? 1 : 0);
}
