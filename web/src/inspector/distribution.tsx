// How values and errors are spread.
import type { JSX } from "preact";
import type { Distribution, RowDetail } from "../api/source";
import { useLatest, type Answer } from "../latest_answer";
import { isHollow } from "../marks";
import { count, numeric, plain } from "../numbers";
import * as state from "../state";
import { answered } from "./slice";

const WIDTH = 190;
const HEIGHT = 66;
const FLOOR = HEIGHT - 12;

export function useDistribution(rowDetail: RowDetail, isShown: boolean): Answer<Distribution> {
  const row = rowDetail.brief.row;
  const answer = useLatest(isShown && answered.value === row ? String(row) : null, () => state.source.distribution(row));
  return answer.key === String(row) ? answer : { value: null, problem: null, key: "" };
}

export function Spread({ rowDetail, spread }: { rowDetail: RowDetail; spread: Answer<Distribution> }): JSX.Element | null {
  const values = spread.value;
  const errors = rowDetail.error_histogram.length > 0;
  if (!values?.edges.length && !errors) return null;
  return (
    <div class="sec">
      <div class="two">
        <div data-testid="values">
          <h4>
            Values <span class="dim">reference ▇ target ─</span>
          </h4>
          {values?.edges.length ? <Values spread={values} /> : rowDetail.missing || values || spread.problem ? <p class="aside">{rowDetail.missing ? "Needs the values." : spread.problem ? "The values cannot be read." : "No finite values."}</p> : <div class="blank" />}
        </div>
        <div data-testid="errors">
          <h4 title="The size of each difference over the root mean square of the reference, as a power of two">log₂ |difference| ÷ rms</h4>
          {errors ? <Errors rowDetail={rowDetail} /> : <p class="aside">Nothing differs.</p>}
        </div>
      </div>
    </div>
  );
}

function Values({ spread }: { spread: Distribution }): JSX.Element {
  const { edges, reference, target } = spread;
  const low = edges[0] as number;
  const high = edges[edges.length - 1] as number;
  const most = Math.max(...reference, ...target, 1);
  const x = (i: number): number => (i / reference.length) * WIDTH;
  const y = (n: number): number => FLOOR - (n / most) * (FLOOR - 4);
  const path = (counts: readonly number[]): string => counts.map((n, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(n).toFixed(1)}H${x(i + 1).toFixed(1)}`).join("");
  const zero = low < 0 && high > 0 ? (-low / (high - low)) * WIDTH : null;
  const outside = spread.reference_outside + spread.target_outside;
  return (
    <>
      <svg width="100%" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`Values from ${plain(low)} to ${plain(high)}`}>
        <path d={`${path(reference)}L${WIDTH} ${FLOOR}H0Z`} fill="var(--reference)" opacity=".45" />
        <path d={path(target)} fill="none" stroke="var(--target)" stroke-width="1.3" />
        <path d={`M0 ${FLOOR}H${WIDTH}`} stroke="var(--line-2)" />
        <text class="tick" x="0" y={HEIGHT - 2}>
          {plain(low)}
        </text>
        {zero !== null && zero > 40 && zero < WIDTH - 40 && (
          <text class="tick" x={zero} y={HEIGHT - 2} text-anchor="middle">
            0
          </text>
        )}
        <text class="tick" x={WIDTH} y={HEIGHT - 2} text-anchor="end">
          {plain(high)}
        </text>
      </svg>
      {outside > 0 && (
        <p class="aside">
          not finite or masked: {count(spread.target_outside)} in the target, {count(spread.reference_outside)} in the reference
        </p>
      )}
    </>
  );
}

function Errors({ rowDetail }: { rowDetail: RowDetail }): JSX.Element {
  const rms = numeric(rowDetail.rms);
  const shift = rms !== null && rms > 0 ? Math.log2(rms) : 0;
  const bins = rowDetail.error_histogram.map(([exponent, n]) => ({ exponent: exponent - shift, n }));
  const low = Math.min(-20, Math.floor(Math.min(...bins.map((bin) => bin.exponent))));
  const high = Math.max(3, Math.ceil(Math.max(...bins.map((bin) => bin.exponent)) + 1));
  const most = Math.max(...bins.map((bin) => bin.n), 1);
  const x = (value: number): number => ((value - low) / (high - low)) * WIDTH;
  const width = WIDTH / (high - low);
  const { level, guilt } = rowDetail.brief;
  const off = level === "moderate" || level === "large";
  const style = (exponent: number): Record<string, string> => {
    const beyond = off && (rowDetail.rounding === null || exponent >= rowDetail.rounding + 2);
    if (!beyond) return { fill: "var(--none-fill)" };
    return isHollow(level, guilt) ? { fill: "var(--surface)", stroke: `var(--${level}-line)` } : { fill: `var(--${level}-fill)` };
  };
  const step = high - low > 40 ? 20 : 10;
  const ticks = Array.from({ length: 12 }, (_, i) => Math.ceil(low / step) * step + i * step).filter((exponent) => exponent < high);
  return (
    <svg width="100%" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label="How many differences of each size">
      {rowDetail.rounding !== null && rms !== null && (
        <>
          <rect width={Math.max(x(rowDetail.rounding), 0)} height={FLOOR} fill="var(--surface-3)" opacity=".7" />
          <text class="tick" x="3" y="9">
            {rowDetail.precision} rounding
          </text>
        </>
      )}
      {bins.map((bin) => (
        <rect x={x(bin.exponent) + 0.5} y={FLOOR - (bin.n / most) * (FLOOR - 4)} width={Math.max(width - 1, 0.8)} height={(bin.n / most) * (FLOOR - 4)} {...style(bin.exponent)} />
      ))}
      <path d={`M0 ${FLOOR}H${WIDTH}`} stroke="var(--line-2)" />
      {ticks.map((exponent) => (
        <text class="tick" x={Math.max(x(exponent), 0)} y={HEIGHT - 2} text-anchor={x(exponent) < 10 ? "start" : "middle"}>
          2
          <tspan dy="-3" font-size="7.5">
            {String(exponent).replace("-", "−")}
          </tspan>
        </text>
      ))}
    </svg>
  );
}
