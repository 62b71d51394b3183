// The line between the two of a sync point.
import { cut, font, token, wide, type Context } from "../canvas";
import * as state from "../state";
import { rectOf, shownFor, type Lanes } from "./layout";
import { REFERENCE, TARGET, type Model } from "./model";

const LINE = 12;

/** The line between the two of a sync point, with why they are a pair. */
export function pairLine(context: Context, model: Model, lanes: Lanes, row: number | null, quiet: boolean): void {
  if (row === null || (quiet && row === state.selected.value)) return;
  const [a, b] = [model.byRow.get(row), model.partner.get(row)];
  if (!a || !b) return;
  const from = rectOf(shownFor(a), TARGET, lanes);
  const to = rectOf(shownFor(b), REFERENCE, lanes);
  const stack = shownFor(a).children ? 3 : 0;
  const [x1, y1, x2, y2] = [from.x + from.w + 3 + stack, from.y + Math.min(from.h, 28) / 2, to.x - 3, to.y + Math.min(to.h, 28) / 2];
  context.strokeStyle = token(quiet ? "accent-line" : "accent");
  context.fillStyle = token(quiet ? "accent-line" : "accent");
  context.lineWidth = 1.4;
  context.setLineDash(quiet ? [2, 3] : []);
  context.beginPath();
  context.moveTo(x1, y1);
  if (Math.abs(y1 - y2) < 2) context.lineTo(x2, y2);
  else context.bezierCurveTo((x1 + x2) / 2, y1, (x1 + x2) / 2, y2, x2, y2);
  context.stroke();
  context.setLineDash([]);
  for (const [x, y] of [[x1, y1], [x2, y2]] as const) {
    context.beginPath();
    context.arc(x, y, 2.4, 0, 7);
    context.fill();
  }
  const style = font(10);
  const lines = wrapped(context, model.evidence.get(row) ?? "", style, Math.max(x2 - x1 - 28, 60));
  if (!lines.length) return;
  const w = Math.max(...lines.map((line) => wide(context, line, style))) + 16;
  const h = lines.length * LINE + 5;
  const [x, y] = [(x1 + x2) / 2, (y1 + y2) / 2];
  context.beginPath();
  context.roundRect(x - w / 2, y - h / 2, w, h, 8.5);
  context.fillStyle = token("surface");
  context.fill();
  context.strokeStyle = token("accent-line");
  context.lineWidth = 1;
  context.stroke();
  context.font = style;
  context.textAlign = "center";
  context.fillStyle = token("ink-2");
  lines.forEach((line, index) => context.fillText(line, x, y - h / 2 + 12 + index * LINE));
  context.textAlign = "left";
}

/** Words in lines of some width; between the lanes there is more room downwards than across. */
function wrapped(context: Context, text: string, style: string, room: number): string[] {
  const lines: string[] = [];
  for (const word of text.split(" ").filter(Boolean)) {
    const longer = lines.length ? `${lines.at(-1)} ${word}` : word;
    if (lines.length && wide(context, longer, style) <= room) lines[lines.length - 1] = longer;
    else lines.push(cut(context, word, style, room));
  }
  return lines;
}
