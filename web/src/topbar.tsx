// The top bar: who against whom, how much was compared, the verdict, and what it is seen through.
import type { JSX } from "preact";
import type { Level, Overview } from "./api/source";
import { inSession } from "./session_link";
import { Glyph } from "./marks";
import { percent } from "./numbers";
import * as state from "./state";

export function Brand(): JSX.Element {
  const inside = (
    <>
      <svg width="18" height="18" viewBox="0 0 18 18" aria-hidden="true">
        <path d="M2 5h4c4 0 2 8 6 8h4M2 13h4c1.4 0 2-.9 2.5-2M10 7c.5-1.2 1-2 2.5-2H16" fill="none" stroke="var(--ink)" stroke-width="1.6" stroke-linecap="round" />
        <circle cx="9" cy="9" r="2" fill="var(--accent)" />
      </svg>
      <span class="hide-s">Syncpoint</span>
    </>
  );
  if (!inSession.value) return <span class="brand">{inside}</span>;
  return (
    <a class="brand" href="/" title="All comparisons">
      {inside}
    </a>
  );
}

export function ThemeButton(): JSX.Element {
  return (
    <button class="ico" title="Light or dark" aria-label="Light or dark" onClick={() => state.setTheme(state.theme.value === "dark" ? "light" : "dark")}>
      <svg width="14" height="14" viewBox="0 0 14 14" aria-hidden="true">
        <circle cx="7" cy="7" r="5.3" fill="none" stroke="currentColor" stroke-width="1.3" />
        <path d="M7 1.7a5.3 5.3 0 0 1 0 10.6Z" fill="currentColor" />
      </svg>
    </button>
  );
}

export function TopBar(): JSX.Element {
  const whole = state.overview.value;
  return (
    <header class="top">
      <Brand />
      {whole && <Facts whole={whole} />}
      <span class="sp" />
      {whole && !state.source.live && (
        <span class="chip standalone" title="One file with its data: presets, further slices and the tensors of other sync points need syncpoint view">
          report
        </span>
      )}
      {whole?.unfinished && (
        <span class="chip unfinished" role="status" title={whole.unfinished}>
          Not complete
        </span>
      )}
      {whole && <Choices whole={whole} />}
      <div class="tools">
        <ThemeButton />
      </div>
    </header>
  );
}

/** The last part of a path, which is what people call it. */
export function short(label: string): string {
  return label.replaceAll("\\", "/").split("/").pop() || label;
}

/** ONNX Runtime calls what it runs on CPUExecutionProvider. */
export function device(name: string): string {
  return name.replace(/ExecutionProvider\b/g, "");
}

/** The runtime and its version, as far as they are known. */
export function runtimeOf(run: Overview["target"]): string {
  return [run.runtime, run.runtime_version].filter(Boolean).join(" ");
}

function Run({ title, run, mark }: { title: string; run: Overview["target"]; mark: boolean }): JSX.Element {
  return (
    <div class="cell run" title={`${run.label}\n${runtimeOf(run)} ${run.device} ${run.precision}`}>
      <small>{title}</small>
      <div>
        <b class="cut">{short(run.label)}</b>
        {run.runtime && <span class={`chip ${mark ? "t" : ""}`}>{run.runtime}</span>}
        {run.device && <span class="chip hide-s">{device(run.device)}</span>}
        {run.precision && <span class="chip">{run.precision}</span>}
      </div>
    </div>
  );
}

export function verdictLevel(verdict: string): { level: Level; guilt: "" | "amplified" } {
  if (verdict === "amplified") return { level: "large", guilt: "amplified" };
  if (verdict === "close" || verdict === "moderate" || verdict === "large") return { level: verdict, guilt: "" };
  return { level: "none", guilt: "" };
}

function Facts({ whole }: { whole: Overview }): JSX.Element {
  const { level, guilt } = verdictLevel(whole.verdict);
  const counts = [
    whole.counts["guilty"] && `${whole.counts["guilty"]} guilty`,
    whole.counts["first-non-finite"] && `${whole.counts["first-non-finite"]} produces NaN or inf`,
    whole.counts["inherited"] && `${whole.counts["inherited"]} inherited`,
    !whole.counts["guilty"] && whole.counts["unknown"] && `${whole.counts["unknown"]} off, guilt unknown`,
  ].filter(Boolean);
  return (
    <>
      <Run title="Target, the run you ship" run={whole.target} mark />
      <Run title="Reference, the run you trust" run={whole.reference} mark={false} />
      <div class="cell" title="Share of tensors with values that were compared">
        <small>
          Coverage <span class="hide-s">of target · reference</span>
        </small>
        <div>
          <span class="cov" role="img" aria-label={`${percent(whole.coverage_target)} of the target`}>
            <i style={{ width: `${whole.coverage_target * 100}%` }} />
          </span>
          <b>{percent(whole.coverage_target)}</b>
          <span class="dim hide-s">· {percent(whole.coverage_reference)}</span>
        </div>
      </div>
      <div class="cell verdict" title="Judged by the worst of PSNR, SQNR, Max Absolute Error and NaN or inf on one side only; the navigator's counts follow the chosen metric instead">
        <small>Verdict</small>
        <div>
          <Glyph level={level} guilt={guilt} size={11} />
          <b class={`v-${level}`}>{whole.verdict === "none" ? "no verdict" : whole.verdict_text}</b>
          <span class="mid cut hide-s">{counts.join(", ")}</span>
        </div>
      </div>
    </>
  );
}

function Choices({ whole }: { whole: Overview }): JSX.Element {
  return (
    <>
      <label class="cell pickcell">
        <small>
          Metric <kbd>m</kbd>
        </small>
        <div>
          <select id="metric" value={state.metric.value} onChange={(event) => (state.metric.value = event.currentTarget.value)}>
            {whole.metrics
              .filter((metric) => metric.choosable)
              .map((metric) => (
                <option value={metric.id} title={metric.explanation}>
                  {metric.title}
                </option>
              ))}
          </select>
        </div>
      </label>
      {state.source.live && (
        <label class="cell pickcell">
          <small>Preset</small>
          <div>
            <select id="preset" value={whole.limits} onChange={(event) => (state.limits.value = event.currentTarget.value)}>
              {!whole.presets.includes(whole.limits) && <option value={whole.limits}>{whole.limits}</option>}
              {whole.presets.map((name) => (
                <option value={name}>{name}</option>
              ))}
            </select>
          </div>
        </label>
      )}
    </>
  );
}
