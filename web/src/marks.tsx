// The marks of a verdict: shape says how bad, filling whose fault; colour only repeats it.
import type { JSX } from "preact";
import type { Guilt, Level } from "./api/source";

const WORDS: Record<string, string> = { close: "close", moderate: "moderate", large: "large", none: "no verdict" };

/** The group of what no module made. */
export const TOP_LEVEL = "(top level)";

/** Whether a mark is drawn hollow: damaged, not guilty. */
export function isHollow(level: Level, guilt: Guilt): boolean {
  return guilt === "inherited" && (level === "moderate" || level === "large");
}

export function Glyph({ level, guilt = "", size = 10 }: { level: Level; guilt?: Guilt; size?: number }): JSX.Element {
  const hollow = isHollow(level, guilt);
  const label = guilt === "amplified" ? "amplified" : `${WORDS[level]}${hollow ? ", inherited" : ""}`;
  return (
    <svg class="g" viewBox="0 0 10 10" width={size} height={size} role="img" aria-label={label}>
      {guilt === "amplified" ? <Amplified /> : <Shape level={level} hollow={hollow} />}
    </svg>
  );
}

function Amplified(): JSX.Element {
  const line = { fill: "none", stroke: "var(--large-line)" };
  return (
    <>
      <rect x="1.4" y="1.4" width="7.2" height="7.2" rx="1" stroke-width="1.5" {...line} />
      <path d="M3.4 6.6 6.6 3.4M4.2 3.4h2.4v2.4" stroke-width="1.2" {...line} />
    </>
  );
}

function Shape({ level, hollow }: { level: Level; hollow: boolean }): JSX.Element {
  const style = hollow
    ? { fill: "var(--surface)", stroke: `var(--${level}-line)`, "stroke-width": "1.7" }
    : level === "moderate"
      ? { fill: "var(--moderate-fill)", stroke: "var(--moderate-line)", "stroke-width": "1" }
      : { fill: `var(--${level}-fill)` };
  if (level === "close") return <circle cx="5" cy="5" r="3.7" {...style} />;
  if (level === "moderate") return <path d="M5 1.2 9.2 8.8H.8Z" stroke-linejoin="round" {...style} />;
  if (level === "large")
    return hollow ? <rect x="1.6" y="1.6" width="6.8" height="6.8" rx=".5" {...style} /> : <rect x="1" y="1" width="8" height="8" rx="1" {...style} />;
  return <path d="M2 5h6" stroke="var(--none-line)" stroke-width="1.8" stroke-linecap="round" fill="none" />;
}

/** The word beside a name: guilty, first non-finite, output. */
export function Tag({ guilt, level }: { guilt: Guilt; level: Level }): JSX.Element | null {
  if (guilt === "guilty") return <span class={`tag guilty ${level === "large" ? "" : "mod"}`}>guilty</span>;
  if (guilt === "first-non-finite") return <span class="tag first">first non-finite</span>;
  if (guilt === "output" || guilt === "amplified") return <span class="tag out">output</span>;
  return null;
}

export function Chevron({ open }: { open: boolean }): JSX.Element {
  return (
    <svg class="chev" viewBox="0 0 12 12" aria-hidden="true">
      <path d={open ? "M3 4.5 6 7.5 9 4.5" : "M4.5 3 7.5 6 4.5 9"} fill="none" stroke="currentColor" stroke-width="1.5" />
    </svg>
  );
}

/** At most 24 cells: full height is made there, outlined is passed on, a dash is close. */
export function Strip({ cells }: { cells: readonly { level: Level; guilt: Guilt }[] }): JSX.Element {
  return (
    <svg width={cells.length * 4} height="11" aria-hidden="true">
      {cells.map(({ level, guilt }, i) => {
        if (level === "close" || level === "none") return <rect x={i * 4} y="4.5" width="3" height="2" fill="var(--none-fill)" />;
        if (guilt === "inherited") return <rect x={i * 4 + 0.5} y="2.5" width="2" height="6" fill="none" stroke={`var(--${level}-line)`} />;
        return <rect x={i * 4} y="0" width="3" height="11" fill={`var(--${level}-fill)`} />;
      })}
    </svg>
  );
}
