// Every number of the sync point, with its limits and in plain words.
import type { JSX } from "preact";
import { signal } from "@preact/signals";
import type { RowDetail } from "../api/source";
import { Glyph } from "../marks";
import { count, limitText, metricText, numeric, percent } from "../numbers";
import * as state from "../state";

const FIRST = 7;
const SHORT_TITLES: Record<string, string> = {
  ...{ psnr: "PSNR", sqnr: "SQNR", rmse: "RMSE", cosine: "Cosine", rel_l2: "Relative L2" },
  ...{ within_1e3: "Within 1/1000", mismatched: "Mismatched", exact: "Equal share", max_ulp: "Max ulp", lsb: "LSB", max_abs_index: "Index of max" },
  ...{ mean_rel_robust: "… robust", acc_rel: "Sum relative", euclid: "Euclidean" },
};
/** Kept while one steps through the sync points. */
const unfolded = signal(false);

export function Metrics({ rowDetail }: { rowDetail: RowDetail }): JSX.Element {
  const lead = rowDetail.metrics.filter((metric, index) => index < FIRST || (metric.id === "mismatched" && metric.value) || (metric.id === "exact" && rowDetail.preset === "exact") || metric.id === state.metric.value);
  const rest = rowDetail.metrics.filter((metric) => !lead.includes(metric));
  const shown = unfolded.value ? [...lead, ...rest] : lead;
  const auto = state.overview.value?.limits === "auto";
  return (
    <div class="sec">
      <h3>
        Metrics <span class="sp" />
        <span>
          preset {auto ? `${rowDetail.preset} (auto)` : state.overview.value?.limits}
          {rest.length > 0 && (
            <>
              {" · "}
              <button class="link" aria-expanded={unfolded.value} onClick={() => (unfolded.value = !unfolded.value)}>
                {unfolded.value ? "fewer" : `${rest.length} more`}
              </button>
            </>
          )}
        </span>
      </h3>
      <table class="mt" data-testid="metrics">
        <tbody>
          {shown.map((metric) => (
            <Line metric={metric} rowDetail={rowDetail} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Line({ metric, rowDetail }: { metric: RowDetail["metrics"][number]; rowDetail: RowDetail }): JSX.Element {
  const info = state.overview.value?.metrics.find((one) => one.id === metric.id);
  const limits = metric.limits.length === 2 ? `limits ${metric.limits.map((one) => limitText(metric.id, one)).join(" / ")}` : "";
  const guilt = rowDetail.brief.guilt === "inherited" ? "inherited" : "";
  return (
    <tr data-metric={metric.id} class={metric.id === state.metric.value ? "on" : ""}>
      <td>
        <Glyph level={metric.level} guilt={guilt} />
      </td>
      <td class="cut" title={info?.title ?? metric.id}>
        {SHORT_TITLES[metric.id] ?? info?.title ?? metric.id}
      </td>
      <td>{shownValue(metric.id, metric.value, info?.unit ?? "")}</td>
      <td title={`${info?.explanation ?? ""}\n${metric.text}\n${limits}`.trim()}>
        {metric.text}
        {limits && "; "}
        {limits && <span class="lim">{limits}</span>}
      </td>
    </tr>
  );
}

function shownValue(id: string, value: RowDetail["metrics"][number]["value"], unit: string): string {
  const number = numeric(value);
  if (number === null) return "–";
  if (unit === "share" && Number.isFinite(number)) return percent(number);
  if (unit === "elements" || unit === "index") return count(number);
  return `${metricText(id, value)}${unit === "dB" ? " dB" : ""}`;
}
