// A tensor without partner: why it has none, and what that means.
import type { JSX } from "preact";
import { Glyph } from "../marks";
import * as state from "../state";
import { Kind } from "./head";
import "./inspector.css";

export function Alone({ one }: { one: state.Unmatched }): JSX.Element {
  const explanation = [one.detail, one.cure].filter(Boolean).map(sentence).join(" ");
  const findings = state.overview.value?.findings.filter((finding) => finding.alone && state.isLookedAt(finding.alone)) ?? [];
  return (
    <aside class="pane insp" aria-label="Inspector">
      <div class="head">
        <h2>Inspector</h2>
        <span class="sp" />
        <button class="btn s" title="Back to what to look at first (Esc)" onClick={() => state.select(null)}>
          Findings
        </button>
      </div>
      <div class="scroll" tabIndex={0} aria-label="The selected tensor">
        <div class="sec" data-testid="alone">
          <div class="pair">
            <small>{one.side}</small>
            <div class="who">
              <b class="start" title={one.op}>
                <bdi>{one.op}</bdi>
              </b>
              <Glyph level="none" size={11} />
              <span class="chip">{one.reason}</span>
              {one.type && <Kind type={one.type} dtype="" shape={null} />}
            </div>
            {one.module && <small>module</small>}
            {one.module && <div class="who">{one.module}</div>}
          </div>
          {findings.map((finding) => (
            <div class="say">
              <b>{finding.title}.</b> {finding.evidence.join("; ")}.
            </div>
          ))}
          <div class="say quiet">
            <b>No verdict.</b> {explanation} {one.counted ? `It counts against the coverage of the ${one.side}.` : "It does not count against coverage."}
          </div>
          {one.counted && one.side === "target" && (
            <p class="aside">
              If you know its partner, name the two in a file and compare again with <span class="whole">--map</span>.
            </p>
          )}
        </div>
      </div>
    </aside>
  );
}

function sentence(text: string): string {
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
}
