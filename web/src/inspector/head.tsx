// Who is compared with whom, and whose fault it is.
import type { JSX } from "preact";
import type { RowDetail } from "../api/source";
import { Glyph, isHollow, Tag } from "../marks";
import { withMinus } from "../numbers";
import * as state from "../state";

export function Pair({ rowDetail }: { rowDetail: RowDetail }): JSX.Element {
  const { brief, target, reference } = rowDetail;
  const same = `${target.shape}` === `${reference.shape}`;
  const how = rowDetail.view ? `view ${rowDetail.view}` : same ? "same shape, no view" : "";
  return (
    <div class="pair">
      <small>target</small>
      <div class="who">
        <b class="start" title={`${target.label}\n${target.module}`}>
          <bdi>{target.label}</bdi>
        </b>
        <Glyph level={brief.level} guilt={brief.guilt} size={11} />
        <Tag guilt={brief.guilt} level={brief.level} />
        {isHollow(brief.level, brief.guilt) && <span class={`tag inh v-${brief.level}`}>inherited</span>}
        <Kind type={target.type} dtype={target.dtype} shape={target.shape} />
      </div>
      <small>reference</small>
      <div class="who">
        <span class="start" title={`${reference.label}\n${reference.module}`}>
          <bdi>{reference.label}</bdi>
        </span>
        <Kind type={reference.type} dtype={reference.dtype} shape={same ? null : reference.shape} />
      </div>
      <small>paired by</small>
      <div class="who by" title={`${rowDetail.evidence}, confidence ${rowDetail.confidence}${rowDetail.view ? `\n${rowDetail.view}` : ""}`}>
        <span class="cut" data-testid="evidence">
          {rowDetail.evidence} {rowDetail.confidence.toFixed(2)}
        </span>
        {how && <span class="dim">·</span>}
        {how && <span class="cut view">{how}</span>}
        {target.part && <span class="dim">·</span>}
        {target.part && <span>{target.part}</span>}
      </div>
    </div>
  );
}

export function Kind({ type, dtype, shape }: { type: string; dtype: string; shape: readonly number[] | null }): JSX.Element {
  const short = type.replace(/^aten\./, "").replace(/\.(default|Tensor|Scalar|int|dim)$/, "");
  const text = [dtype, shape && (shape.length ? `[${shape.join(", ")}]` : "scalar")].filter(Boolean).join(" · ");
  return (
    <span class="dim kind" title={[type, text].filter(Boolean).join(" · ")}>
      {short && <span class="cut">{short}</span>}
      {text && <span class="facts">{short ? ` · ${text}` : text}</span>}
    </span>
  );
}

export function Fault({ rowDetail }: { rowDetail: RowDetail }): JSX.Element {
  const { level, guilt } = rowDetail.brief;
  const findings = state.overview.value?.findings ?? [];
  const findingIndex = findings.findIndex((one) => one.rows.includes(rowDetail.brief.row) && one.level !== "none");
  const bad = rowDetail.brief.verdict === "large" || rowDetail.brief.verdict === "amplified" || guilt === "guilty";
  const tone = level === "none" || rowDetail.brief.verdict === "none" ? "quiet" : rowDetail.brief.verdict === "close" ? "ok" : guilt === "inherited" || !bad ? "inh" : "";
  return (
    <div class={`say ${tone}`} data-testid="fault">
      <b>{rowDetail.headline}</b> {withMinus(rowDetail.story)}
      {rowDetail.guilty_row !== null && (
        <>
          {" "}
          It came in from{" "}
          <button class="link" onClick={() => state.select(rowDetail.guilty_row)}>
            {rowDetail.guilty_label}
          </button>
          , {rowDetail.guilty_how}.
        </>
      )}
      {findingIndex >= 0 && (
        <>
          {" "}
          <button class="link" onClick={() => state.select(null)}>
            Finding {findingIndex + 1}
          </button>
        </>
      )}
    </div>
  );
}
