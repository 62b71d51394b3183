// Total, introduced and expected error, over the peak and on a logarithmic scale: longer is worse.
import type { JSX } from "preact";
import type { RowDetail } from "../api/source";
import { isHollow } from "../marks";
import { metricText, numeric, times as timesText } from "../numbers";

const WIDTH = 396;
const LEFT = 78;
const RIGHT = WIDTH - 108;

export function Bars({ rowDetail }: { rowDetail: RowDetail }): JSX.Element {
  const bars = rowDetail.bars;
  const { level, guilt } = rowDetail.brief;
  const logs = [bars.total, bars.introduced, bars.expected].map((value) => {
    const size = numeric(value);
    return size === null || Number.isNaN(size) ? null : size > 0 ? Math.log10(size) : -Infinity;
  });
  const [total, introduced, expected] = logs as [number | null, number | null, number | null];
  const finite = logs.filter((value): value is number => value !== null && Number.isFinite(value));
  const low = Math.floor(Math.min(-3, ...finite) - 0.4);
  const high = Math.ceil(Math.max(low + 3, ...finite, (expected ?? low) + Math.log10(bars.large_ratio || 1)) + 0.05);
  const x = (value: number): number => LEFT + Math.max(0, Math.min(1, (value - low) / (high - low))) * (RIGHT - LEFT);
  const hollow = isHollow(level, guilt);
  const off = level === "moderate" || level === "large";
  const ratio = numeric(bars.ratio);
  const past = ratio !== null && ratio > bars.close_ratio;
  const step = Math.max(1, Math.ceil((high - low) / 6));
  const ticks = Array.from({ length: Math.floor((high - low) / step) + 1 }, (_, i) => low + i * step);
  return (
    <div class="sec" data-testid="bars">
      <h3>
        Total, introduced, expected <span class="sp" />
        <span>error ÷ peak, log scale</span>
      </h3>
      <svg width="100%" viewBox={`0 0 ${WIDTH} 78`} role="img" aria-label={spoken(rowDetail)}>
        {expected !== null && Number.isFinite(expected) && (
          <>
            <rect x={LEFT} y="2" width={x(expected) - LEFT} height="61" fill="var(--surface-3)" opacity=".75" />
            {[bars.close_ratio, bars.large_ratio].map((times, i) => (
              <>
                <path d={`M${x(expected + Math.log10(times))} 2V63`} stroke="var(--line-2)" stroke-dasharray="2 2" />
                <text class="tick" x={x(expected + Math.log10(times)) + (i ? 3 : -3)} y="58" text-anchor={i ? "start" : "end"}>
                  {times}×{i ? " large" : ""}
                </text>
              </>
            ))}
          </>
        )}
        {ticks.map((exponent) => (
          <text class="tick" x={x(exponent)} y="75" text-anchor="middle">
            10
            <tspan dy="-3" font-size="7.5">
              {String(exponent).replace("-", "−")}
            </tspan>
          </text>
        ))}
        <Bar line={0} name="total" end={total} value={metricText("psnr", bars.total_psnr)} unit="dB" x={x} style={off ? { fill: "var(--surface)", stroke: `var(--${level}-line)`, "stroke-width": 1.3 } : { fill: "var(--surface)", stroke: "var(--none-line)", "stroke-width": 1.3 }} />
        <Bar line={1} name="introduced" end={introduced} value={introduced === null ? (bars.unknown ? "unknown" : "not measured") : metricText("psnr", bars.introduced_psnr)} unit={introduced === null ? "" : `dB ${times(ratio)}`} x={x} style={{ fill: past && !hollow ? `var(--${ratio !== null && ratio >= bars.large_ratio ? "large" : "moderate"}-fill)` : "var(--none-fill)" }} />
        <Bar line={2} name="expected" end={expected} value={expected === null ? "–" : metricText("psnr", bars.expected_psnr)} unit={expected === null ? "" : "dB"} x={x} style={{ fill: "var(--none-fill)" }} />
      </svg>
      {bars.unknown && <p class="aside">Introduced error is not known: {bars.unknown}</p>}
    </div>
  );
}

interface BarProps {
  line: number;
  name: string;
  end: number | null;
  value: string;
  unit: string;
  x: (value: number) => number;
  style: Record<string, string | number>;
}

function Bar({ line, name, end, value, unit, x, style }: BarProps): JSX.Element {
  const y = 4 + line * 20;
  const width = end === null ? 0 : Math.max(x(end) - LEFT, 1);
  const strong = line === 1 ? 620 : 500;
  return (
    <>
      <text class="name" x="0" y={y + 12} font-weight={strong}>
        {name}
      </text>
      {end !== null && <rect x={LEFT + 0.6} y={y + 3.5} width={width} height={line === 2 ? 9 : 10} rx="1.5" {...style} />}
      <text class="name" x={end === null ? LEFT + 4 : WIDTH - 66} y={y + 12} text-anchor={end === null ? "start" : "end"} font-weight={strong} fill-opacity={end === null ? 0.7 : 1}>
        {value}
      </text>
      <text class="tick" x={WIDTH - 62} y={y + 12}>
        {unit}
      </text>
    </>
  );
}

const times = (ratio: number | null): string => (ratio === null ? "" : timesText(ratio));

function spoken(rowDetail: RowDetail): string {
  const bars = rowDetail.bars;
  const parts = [`total ${metricText("psnr", bars.total_psnr)} decibels`];
  if (bars.introduced !== null) parts.push(`introduced ${metricText("psnr", bars.introduced_psnr)}, ${times(numeric(bars.ratio))} of expected`);
  if (bars.expected !== null) parts.push(`expected ${metricText("psnr", bars.expected_psnr)}`);
  return parts.join(", ");
}
