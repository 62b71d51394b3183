// The line between the two of a sync point.
import { cut, font, token, wide, type Context } from "../canvas";
import * as state from "../state";
import { rectOf, shownFor, type Lanes } from "./layout";
import { REFERENCE, TARGET, type Model } from "./model";

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
  const said = cut(context, model.evidence.get(row) ?? "", style, Math.max(x2 - x1 - 28, 60));
  if (!said) return;
  const w = wide(context, said, style) + 16;
  const [x, y] = [(x1 + x2) / 2, (y1 + y2) / 2];
  context.beginPath();
  context.roundRect(x - w / 2, y - 8.5, w, 17, 8.5);
  context.fillStyle = token("surface");
  context.fill();
  context.strokeStyle = token("accent-line");
  context.lineWidth = 1;
  context.stroke();
  context.font = style;
  context.textAlign = "center";
  context.fillStyle = token("ink-2");
  context.fillText(said, x, y + 3.5);
  context.textAlign = "left";
}
