// What is left to know: notes, attributes of both ops, and the way through the source.
import type { JSX } from "preact";
import type { RowDetail } from "../api/source";
import { short } from "../topbar";

export function More({ rowDetail }: { rowDetail: RowDetail }): JSX.Element {
  const ends = [rowDetail.target, rowDetail.reference] as const;
  const names = [...new Set(ends.flatMap((end) => Object.keys(end.attributes)))].sort();
  const stack = rowDetail.target.stack.length ? rowDetail.target.stack : rowDetail.reference.stack;
  return (
    <>
      {rowDetail.notes.length > 0 && (
        <div class="sec">
          <h3>Notes</h3>
          <ul class="notes">
            {rowDetail.notes.map((note) => (
              <li>{note}</li>
            ))}
          </ul>
        </div>
      )}
      {names.length > 0 && (
        <details class="sec fold">
          <summary>
            Attributes <span class="dim">{names.length}</span>
          </summary>
          <table class="wt attrs">
            <thead>
              <tr>
                <th>name</th>
                <th>reference</th>
                <th>target</th>
              </tr>
            </thead>
            <tbody>
              {names.map((name) => {
                const [target, reference] = ends.map((end) => end.attributes[name] ?? "–");
                return (
                  <tr class={target === reference ? "" : "unlike"}>
                    <td>{name}</td>
                    <td title={reference}>{reference}</td>
                    <td title={target}>{target}</td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </details>
      )}
      {stack.length > 0 && (
        <details class="sec fold">
          <summary>
            Source stack <span class="dim">{stack.length}</span>
          </summary>
          <ol class="stack mono">
            {[...stack].reverse().map((frame) => (
              <li title={frame}>{short(frame)}</li>
            ))}
          </ol>
        </details>
      )}
    </>
  );
}
