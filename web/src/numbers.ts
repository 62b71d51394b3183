// Numbers as people read them: real minus signs, no more digits than mean something.
import type { Score } from "./api/source";

const MINUS = "\u2212";
const SHARES = new Set(["cosine", "exact", "within_1e3", "within_5e3", "allclose", "norm_ratio"]);
const DECIBELS = new Set(["psnr", "sqnr"]);

export const isDecibels = (metric: string): boolean => DECIBELS.has(metric);

/** A number of any size in about `digits` digits. */
export function plain(value: number, digits = 3): string {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : `${MINUS}∞`;
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return String(value).replace("-", MINUS);
  const text = size < 1e-3 || size >= 1e5 ? value.toExponential(digits - 1).replace("e+", "e") : value.toPrecision(digits);
  return text.replaceAll("-", MINUS);
}

/** With a sign always, for values side by side. */
export function signed(value: number, digits = 4): string {
  return value > 0 ? `+${plain(value, digits)}` : plain(value, digits);
}

/** Words with numbers in them, with real minus signs. */
export function withMinus(words: string): string {
  return words.replace(/(^|[\s(])-(?=\d)/g, `$1${MINUS}`);
}

/** A number of the API, which has words for what is not finite. */
export function numeric(value: Score | undefined): number | null {
  if (value === null || value === undefined) return null;
  if (typeof value === "number") return value;
  return value === "nan" ? NaN : value === "inf" ? Infinity : -Infinity;
}

/** A metric's value; a dash where there is none. */
export function metricText(metric: string, value: Score | undefined): string {
  const number = numeric(value);
  if (number === null) return "–";
  if (!Number.isFinite(number)) return plain(number);
  if (DECIBELS.has(metric)) return number.toFixed(1).replace("-", MINUS);
  // Enough digits that 0.99999 never looks like 1.
  if (SHARES.has(metric)) return nearlyOne(number, 6) ? (nearlyOne(number, 8) ? besideOne(number) : number.toPrecision(8)) : plain(number, 5);
  return plain(number);
}

const nearlyOne = (value: number, digits: number): boolean => value !== 1 && Number(value.toPrecision(digits)) === 1;
const besideOne = (value: number): string => `1 ${value < 1 ? MINUS : "+"} ${plain(Math.abs(1 - value), 2)}`;

/** A metric's value, or what it is known to be at most. */
export function scoreText(metric: string, value: Score | undefined, bound: boolean): string {
  return bound ? `≤ ${metricText(metric, value)}` : metricText(metric, value);
}

/** 1,234,567. */
export function count(value: number): string {
  return value.toLocaleString("en-US");
}

/** A share as a percentage that never rounds to all or to nothing. */
export function percent(share: number): string {
  const value = share * 100;
  if (value > 0 && value < 1) return value < 0.1 ? "< 0.1 %" : `${plain(value, 1)} %`;
  return `${value > 99 && value < 100 ? Math.floor(value * 10) / 10 : Math.round(value)} %`;
}

/** A limit: as many digits as somebody wrote, where a metric would have all that it has. */
export function limitText(metric: string, value: Score): string {
  const number = numeric(value);
  if (number === null || !Number.isFinite(number)) return metricText(metric, value);
  if (SHARES.has(metric) && nearlyOne(number, 5)) return besideOne(number);
  return plain(Number(number.toPrecision(SHARES.has(metric) ? 5 : 2)), SHARES.has(metric) ? 5 : 2);
}

/** How many times as much; reports write it the same way (`ratio_text`). */
export function times(ratio: number): string {
  if (!Number.isFinite(ratio)) return "∞×";
  if (ratio === 0) return "0";
  const tenths = ratio.toFixed(1);
  const text = Number(tenths) < 100 ? tenths : Math.round(ratio) < 1e6 ? count(Math.round(ratio)) : ratio.toExponential(0).replace("e+", "e");
  return `${text}×`;
}
