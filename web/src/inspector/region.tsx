// The reference ops that one sync point stands for where they are several.
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import type { RowDetail } from "../api/source";
import { pointed } from "../code/place";
import { member } from "../structure/member";
import { short } from "../topbar";
import * as state from "../state";

const FIRST = 8;
/** The sync point whose ops are all shown. */
const unfolded = signal<number | null>(null);

type Piece = RowDetail["region"][number];

/** To its own sync point, or, for one that has none, to its line and its place in the graph. */
function show(piece: Piece): void {
  if (piece.row !== null && piece.row !== state.selected.peek()) return state.select(piece.row);
  member.value = piece.label;
  if (piece.file) pointed.value = { side: "reference", file: piece.file, line: piece.line };
}

export function Region({ rowDetail }: { rowDetail: RowDetail }): JSX.Element | null {
  const { region } = rowDetail;
  if (region.length < 2) return null;
  const all = unfolded.value === rowDetail.brief.row;
  const shown = all ? region : region.slice(0, FIRST);
  const off = rowDetail.brief.level === "moderate" || rowDetail.brief.level === "large";
  const words = off && rowDetail.brief.guilt !== "inherited" ? "Somewhere in" : "It stands for";
  return (
    <p class="aside" data-testid="region">
      {words} {region.length} reference ops together:{" "}
      {shown.map((piece, index) => (
        <>
          {index > 0 && ", "}
          <button class="link" title={describe(piece)} aria-current={member.value === piece.label} onClick={() => show(piece)}>
            {piece.label}
          </button>
        </>
      ))}
      {shown.length < region.length && (
        <>
          {" "}
          <button class="link" onClick={() => (unfolded.value = rowDetail.brief.row)}>
            and {region.length - shown.length} more
          </button>
        </>
      )}
    </p>
  );
}

function describe(piece: Piece): string {
  const where = piece.file ? `${short(piece.file)}:${piece.line}` : "source line unknown";
  const kind = piece.row === null ? "computed together with the others; shows its line" : "has a sync point of its own";
  return [piece.type, piece.module, where, kind].filter(Boolean).join("\n");
}
