// What to look at first: one sentence, then the cards, most important first.
import type { JSX } from "preact";
import type { Finding } from "../api/source";
import { Glyph } from "../marks";
import { short } from "../topbar";
import * as state from "../state";

export function Findings(): JSX.Element {
  const whole = state.overview.value;
  return (
    <aside class="pane insp" aria-label="Findings">
      <div class="head">
        <h2>Findings</h2>
        {whole && <span class="dim">{whole.findings.length ? `${whole.findings.length}, most important first` : "none"}</span>}
        <span class="sp" />
      </div>
      <div class="scroll" tabIndex={0} aria-label="Findings">
        {whole && (
          <>
            <div class="hero">
              {whole.symptom && <p class="mid">{whole.symptom}</p>}
              <p class="big">{whole.summary}</p>
              {whole.aside && <p class="mid">{whole.aside}</p>}
            </div>
            {whole.warnings.map((warning) => (
              <div class="card note">
                <p>{warning}</p>
              </div>
            ))}
            {whole.findings.map((finding, index) => (
              <Card finding={finding} rank={index + 1} />
            ))}
          </>
        )}
      </div>
    </aside>
  );
}

function Card({ finding, rank }: { finding: Finding; rank: number }): JSX.Element {
  const first = finding.rows[0];
  const show = (): void => state.select(first ?? null);
  return (
    <div class={`card ${rank === 1 ? "hot" : ""}`} data-testid="finding">
      <h3>
        <span class="rk">{rank}</span>
        <Glyph level={finding.level} />
        <span>{finding.title}</span>
        <span class="sp" />
        {finding.confidence !== null && <Confidence finding={finding} value={finding.confidence} />}
      </h3>
      <ul>
        {finding.evidence.map((line) => (
          <li>{line}</li>
        ))}
      </ul>
      {finding.missing.length > 0 && (
        <p class="dim">
          Would tell more: {finding.missing.join("; ")}.
        </p>
      )}
      {finding.next && (
        <div class="next">
          <b>next</b>
          <span>{finding.next}</span>
        </div>
      )}
      {first !== undefined && (
        <footer>
          <button class="btn s pri" onClick={show}>
            Show it
          </button>
          {finding.source && (
            <button class="btn s" onClick={show} title={finding.source}>
              {short(finding.source)}
            </button>
          )}
        </footer>
      )}
    </div>
  );
}

function Confidence({ finding, value }: { finding: Finding; value: number }): JSX.Element {
  return (
    <span class="conf" title={`${finding.cause}: ${finding.certainty}, ${value.toFixed(2)}`}>
      <i>
        <b style={{ width: `${value * 100}%` }} />
      </i>
      {finding.certainty}
    </span>
  );
}
