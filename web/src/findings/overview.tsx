// The comparison as a whole, while nothing is selected.
import type { JSX } from "preact";
import type { Overview as Whole } from "../api/source";
import { Glyph } from "../marks";
import { count, percent, scoreText } from "../numbers";
import * as state from "../state";

export function Overview(): JSX.Element | null {
  const whole = state.overview.value;
  if (!whole) return null;
  return (
    <div class="ov" tabIndex={0} aria-label="Overview">
      <Coverage whole={whole} />
      <Verdicts whole={whole} />
      <Outputs whole={whole} />
      <Trust whole={whole} />
    </div>
  );
}

function Coverage({ whole }: { whole: Whole }): JSX.Element {
  const bases = Object.entries(whole.bases).filter(([name]) => name !== "values");
  return (
    <section>
      <h3>Coverage</h3>
      <div class="big-number">
        <b>{percent(whole.coverage_target)}</b>
        <span class="mid">
          {count(whole.compared)} of {count(whole.target_tensors)} target tensors compared
        </span>
      </div>
      <div class="bar">
        <i style={{ width: `${whole.coverage_target * 100}%`, background: "var(--ink-2)" }} />
      </div>
      <p class="mid">
        Reference {percent(whole.coverage_reference)}
        {whole.unmatched_reference > 0 && whole.compared > 0 && `: ${count(whole.unmatched_reference)} of its tensors have no partner${missing(whole)}`}.
      </p>
      {whole.uncovered && (
        <p class="mid" data-testid="uncovered">
          Exit code {whole.exit_code}: {whole.uncovered}.
        </p>
      )}
      {bases.map(([name, number]) => (
        <p class="mid">
          {count(number)} by {name}, which {name === "digest" ? "show only equal or different" : "can prove a difference but not equality"}.
        </p>
      ))}
    </section>
  );
}

/** What becomes of an error in a reference tensor without a partner. */
function missing(whole: Whole): string {
  if (!whole.missing_reference) return "; errors in them would show in what was compared";
  return `, ${count(whole.missing_reference)} of them are missing`;
}

function Verdicts({ whole }: { whole: Whole }): JSX.Element {
  const n = (name: string): number => whole.counts[name] ?? 0;
  const all = n("close") + n("moderate") + n("large") + n("inherited") + n("amplified") + n("none");
  const piece = (name: string, ground: string): JSX.Element | null =>
    n(name) ? <i style={{ width: `${(n(name) / all) * 100}%`, background: ground, minWidth: "3px" }} /> : null;
  const line = (number: number, mark: JSX.Element, word: string, text: string): JSX.Element | null =>
    number ? (
      <tr>
        <td>{mark}</td>
        <td>
          <b>
            {count(number)} {word}
          </b>
        </td>
        <td class="dim">{text}</td>
      </tr>
    ) : null;
  return (
    <section>
      <h3>
        Verdicts <span class="dim">{count(all)} sync points</span>
      </h3>
      <div class="bar" role="img" aria-label="Share of each verdict">
        {piece("large", "var(--large-fill)")}
        {piece("amplified", "var(--large-line)")}
        {piece("moderate", "var(--moderate-fill)")}
        {piece("inherited", "repeating-linear-gradient(135deg, var(--large-line) 0 2px, var(--surface) 2px 5px)")}
        {piece("close", "var(--close-fill)")}
        {piece("none", "var(--none-fill)")}
      </div>
      {!all && <p class="mid">None: no tensor of the target found a partner.</p>}
      <table class="vt">
        <tbody>
          {line(n("guilty"), <Glyph level="large" />, "guilty", "introduces the error")}
          {line(n("first-non-finite"), <Glyph level="large" />, "first non-finite", "NaN or inf starts here")}
          {line(n("output"), <Glyph level="large" />, n("output") > 1 ? "outputs" : "output", "off by total error")}
          {line(n("amplified"), <Glyph level="large" guilt="amplified" />, "amplified", "output off, no guilty op")}
          {line(n("unknown"), <Glyph level="large" />, "guilt unknown", "introduced error unknown")}
          {line(n("inherited"), <Glyph level="large" guilt="inherited" />, "inherited", "affected, not guilty")}
          {line(n("close"), <Glyph level="close" />, "close", "within the limits")}
          {line(n("none"), <Glyph level="none" />, "no verdict", "each row shows the reason")}
        </tbody>
      </table>
    </section>
  );
}

function Outputs({ whole }: { whole: Whole }): JSX.Element {
  return (
    <section>
      <h3>Model outputs</h3>
      {whole.outputs.length ? (
        <table class="ot">
          <thead>
            <tr>
              <th />
              <th>output</th>
              <th>PSNR, dB</th>
            </tr>
          </thead>
          <tbody>
            {whole.outputs.slice(0, 12).map((output) => (
              <tr>
                <td>
                  <Glyph level={output.level} guilt={output.verdict === "amplified" ? "amplified" : ""} />
                </td>
                <td>
                  <button class="link" onClick={() => state.select(output.row)} title={output.reason}>
                    {output.name}
                  </button>
                </td>
                <td class={`v-${output.level}`}>{output.psnr === null ? output.reason : scoreText("psnr", output.psnr, output.bound)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      ) : (
        <p class="mid">Neither run says which tensors are the model's outputs.</p>
      )}
    </section>
  );
}

function Trust({ whole }: { whole: Whole }): JSX.Element {
  return (
    <section>
      <h3>Can these runs be trusted?</h3>
      <table class="tt">
        <tbody>
          {whole.trust.map((line) => (
            <tr>
              <td class="dim">{line.what}</td>
              <td>
                <Glyph level={line.level} />
              </td>
              <td class="mid">{line.text}</td>
            </tr>
          ))}
          {[whole.target, whole.reference].map((run, index) =>
            run.available ? null : (
              <tr>
                <td class="dim">{index ? "reference" : "target"} values</td>
                <td>
                  <Glyph level="moderate" />
                </td>
                <td class="mid">not available: {run.why_not}</td>
              </tr>
            ),
          )}
        </tbody>
      </table>
    </section>
  );
}
