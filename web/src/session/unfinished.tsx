// What is measured of a comparison that is not finished: a small strip, and a way to look at it.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { problemOf, type Problem } from "../api/source";
import * as api from "./api";

const HIGH = 40;
const TOP = 120;
const COLOURS: Record<string, string> = { c: "close", m: "moderate", l: "large" };

/** PSNR over execution order, up is good: close is a dash, sync points that are off hang down as far as it is off. */
export function Strip({ drift }: { drift: NonNullable<api.Job["drift"]> }): JSX.Element {
  const { levels, psnr } = drift;
  const measured = psnr.filter((value) => value >= 0);
  const least = measured.length ? Math.min(...measured) : null;
  const y = (value: number): number => 1 + (1 - value / TOP) * (HIGH - 3);
  return (
    <div class="strip" title="PSNR over execution order so far, 0 to 120 dB; sync points that are off hang down">
      <svg viewBox={`0 0 ${levels.length} ${HIGH}`} width="100%" height={HIGH} preserveAspectRatio="none" role="img" aria-label={`Drift so far${least === null ? "" : `, lowest PSNR ${least} dB`}`}>
        {[...levels].map((level, index) => {
          const name = COLOURS[level];
          const value = psnr[index] ?? -1;
          if (!name) return level === "n" ? <rect x={index + 0.1} y={HIGH - 2} width={0.8} height={2} fill="var(--none-fill)" /> : null;
          if (level === "c") return value < 0 ? null : <rect x={index + 0.1} y={y(value)} width={0.8} height={2} fill="var(--close-fill)" />;
          return <rect x={index + 0.1} y={1} width={0.8} height={Math.max(y(Math.max(value, 0)), 3)} fill={`var(--${name}-fill)`} />;
        })}
      </svg>
      <span class="dim">{least === null ? "nothing measured yet" : `lowest PSNR so far ${least} dB`}</span>
    </div>
  );
}

/** Opens what is finished, in place. */
export function Look({ folder, name, onProblem }: { folder: string; name: string; onProblem: (problem: Problem | null) => void }): JSX.Element {
  const [busy, setBusy] = useState(false);
  const look = (): void => {
    setBusy(true);
    api.soFar(folder).then(
      (answer) => location.assign(`/c/${answer.comparison}`),
      (error: unknown) => {
        setBusy(false);
        onProblem(problemOf(error));
      },
    );
  };
  return (
    <button type="button" class="btn s" disabled={busy} aria-label={`Open what is finished of ${name}`} title="Open the sync points measured so far; the comparison is not complete" onClick={look}>
      {busy ? "Opening…" : "Open what is finished"}
    </button>
  );
}
