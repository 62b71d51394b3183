// From scores to heights: up is good for every metric.
import { isDecibels, limitText, plain } from "../numbers";

/** Metrics whose best is 1, where the distance to it is what tells. */
const NEAR_ONE = new Set(["cosine", "norm_ratio"]);

export interface Scale {
  /** Greater is better; infinite where it is perfect, or as bad as can be. NaN stays NaN. */
  of(score: number): number;
  /** The words of a height. */
  text(height: number): string;
  /** What stands at the height of what is perfect. */
  perfect: string;
  /** The words of a limit, short enough to stand beside its line. */
  limit(score: number): string;
  /** What the axis shows, and the same where there is little room. */
  title: string;
  brief: string;
  log: boolean;
}

export function scaleOf(metric: string, title: string, unit: string, better: "higher" | "lower" | "one" | null): Scale {
  const near = NEAR_ONE.has(metric) || better === "one";
  if (near || better === "lower")
    return {
      log: true,
      perfect: "0",
      of: (score) => -Math.log10(near ? Math.abs(1 - score) : Math.abs(score)),
      text: (height) => (height === 0 ? "1" : `10${raised(-height)}`),
      limit: (score) => plain(near ? Math.abs(1 - score) : Math.abs(score), 1),
      title: near ? `|1 − ${title}|` : title + (unit ? `, ${unit}` : ""),
      brief: near ? "|1 − value|" : title,
    };
  const axisTitle = title + (unit ? `, ${unit}` : isDecibels(metric) ? ", dB" : "");
  return { log: false, perfect: "∞", of: (score) => score, text: (height) => plain(height), limit: (score) => limitText(metric, score), title: axisTitle, brief: title };
}

const DIGITS = "⁰¹²³⁴⁵⁶⁷⁸⁹";

function raised(power: number): string {
  const digits = String(Math.abs(Math.round(power)));
  return (power < 0 ? "⁻" : "") + [...digits].map((digit) => DIGITS[Number(digit)]).join("");
}

/** Least and greatest height with some air, whatever is missing. */
export function range(heights: Iterable<number>, log: boolean): [number, number] {
  let [lo, hi] = [Infinity, -Infinity];
  for (const height of heights) {
    if (!Number.isFinite(height)) continue;
    lo = Math.min(lo, height);
    hi = Math.max(hi, height);
  }
  if (lo > hi) return log ? [0, 4] : [0, 1];
  const air = Math.max((hi - lo) * 0.08, log ? 0.3 : Math.abs(hi) * 0.02 || 0.5);
  return [lo - air, hi + air];
}

/** Round heights for grid lines, so many or fewer. */
export function ticks(lo: number, hi: number, most: number, log: boolean): number[] {
  const rough = (hi - lo) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough));
  let step = (log ? [1, 2, 5, 10] : [1, 2.5, 5, 10]).map((n) => n * power).find((n) => n >= rough) ?? rough;
  if (log) step = Math.max(1, Math.ceil(step));
  const heights: number[] = [];
  for (let height = Math.ceil(lo / step) * step; height <= hi + step * 1e-9; height += step) heights.push(Math.abs(height) < step * 1e-9 ? 0 : height);
  return heights;
}
