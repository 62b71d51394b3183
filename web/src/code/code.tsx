// The source line that the selected op came from, with a mark for every sync point of each line.
import { render, type JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { signal } from "@preact/signals";
import type { RowDetail, Side, SourceFile } from "../api/source";
import { useLatest } from "../latest_answer";
import { detail, problem, startDetail } from "../row_detail";
import { Trouble } from "../inspector/inspector";
import * as state from "../state";
import { short } from "../topbar";
import "./code.css";
import { Crumb } from "./crumb";
import { Editor } from "./editor";
import { pointed, type Place } from "./place";

/** Which run's source is wished for; the other one serves where there is none. */
const wish = signal<Side>("target");

function placeOf(rowDetail: RowDetail | null): Place | null {
  if (!rowDetail) return null;
  if (pointed.value) return pointed.value;
  const other: Side = wish.value === "target" ? "reference" : "target";
  for (const side of [wish.value, other]) {
    const { file, line } = rowDetail[side];
    if (file) return { side, file, line };
  }
  return null;
}

export function Code(): JSX.Element {
  useEffect(startDetail, []);
  const rowDetail = detail.value;
  const [place, setPlace] = useState<Place | null>(null);
  const now = placeOf(rowDetail);
  // While the next sync point is on its way the file stays.
  useEffect(() => {
    if (rowDetail) setPlace(now);
  }, [rowDetail, wish.value, pointed.value]);
  const [tried, setTried] = useState<Side | null>(null);
  const key = place ? `${place.side} ${place.file}` : null;
  const answer = useLatest(key, () => state.source.file((place as Place).side, (place as Place).file));
  const file = answer.key === key ? answer.value : null;
  useEffect(() => {
    // A run may name a file and not have it, while the other run does.
    if (!file || file.text !== null || !rowDetail || tried === file.side) return;
    const other: Side = file.side === "target" ? "reference" : "target";
    if (!rowDetail[other].file || tried !== null) return;
    setTried(file.side);
    wish.value = other;
  }, [file]);
  const hasBothFiles = Boolean(rowDetail?.target.file && rowDetail.reference.file);
  // A file that is not available has no line to name.
  useCrumb(rowDetail, problem.value ? null : place, hasBothFiles);
  if (problem.value) return <Trouble what="The source cannot be shown" problem={problem.value} />;
  if (answer.problem && answer.key === key) return <Trouble what="The source cannot be shown" problem={answer.problem} />;
  if (rowDetail && !now) return <NoSource rowDetail={rowDetail} why={noSource(rowDetail)} />;
  if (file && file.text === null && rowDetail) return <NoSource rowDetail={rowDetail} why={file.why_not} file={file} />;
  if (!file || !place) return <div class="code" aria-label="Source" aria-busy="true" />;
  return <Editor file={file} line={place.line} />;
}

function useCrumb(rowDetail: RowDetail | null, place: Place | null, hasBothFiles: boolean): void {
  const home = useRef<HTMLElement | null>(null);
  const module = rowDetail ? rowDetail.target.module || rowDetail.reference.module : "";
  useEffect(() => {
    home.current = document.getElementById("crumb");
    if (!home.current) return;
    const choose = (side: Side): void => {
      pointed.value = null;
      wish.value = side;
    };
    render(<Crumb module={module} file={place?.file ?? ""} line={place?.line ?? 0} side={place?.side ?? null} hasBothFiles={hasBothFiles} onSide={choose} />, home.current);
  }, [module, place?.file, place?.line, place?.side, hasBothFiles]);
  useEffect(
    () => () => {
      if (home.current) render(null, home.current);
    },
    [],
  );
}

function noSource(rowDetail: RowDetail): string {
  const role = rowDetail.target.role;
  if (role === "model-input") return "It is a model input; no source line computes it.";
  if (role === "parameter") return "It is a parameter; no source line computes it.";
  return "Neither run has a source stack for it.";
}

function NoSource({ rowDetail, why, file }: { rowDetail: RowDetail; why: string; file?: SourceFile }): JSX.Element {
  const module = rowDetail.target.module || rowDetail.reference.module;
  const name = rowDetail.target.label;
  return (
    <div class="code nosource" tabIndex={0} aria-label="Source" data-testid="nosource">
      <div class="empty">
        <b title={file?.file}>{file ? `${short(file.file)} is not available.` : `No source line for ${name}.`}</b>
        <span>{why}</span>
        {module && <span>Its module path is known: {module}</span>}
      </div>
    </div>
  );
}
