// The elements that are furthest off, and what they share.
import type { JSX } from "preact";
import { signal } from "@preact/signals";
import type { Distribution, RowDetail } from "../api/source";
import type { Answer } from "../latest_answer";
import { numeric, signed } from "../numbers";
import { lookAt } from "./slice";

const FIRST = 5;
const unfolded = signal(false);

export function Worst({ rowDetail, spread }: { rowDetail: RowDetail; spread: Answer<Distribution> }): JSX.Element | null {
  const worst = spread.value?.worst;
  if (!worst?.length) return null;
  const text = (value: Parameters<typeof numeric>[0]): string => signed(numeric(value) ?? NaN, 4);
  const shape = rowDetail.reference.shape;
  return (
    <div class="sec">
      <h3>
        Worst elements <span class="sp" />
        <span data-testid="pattern">
          {spread.value?.pattern}
          {worst.length > FIRST && (
            <>
              {spread.value?.pattern && " · "}
              <button class="link" aria-expanded={unfolded.value} onClick={() => (unfolded.value = !unfolded.value)}>
                {unfolded.value ? "fewer" : `${worst.length - FIRST} more`}
              </button>
            </>
          )}
        </span>
      </h3>
      <table class="wt" data-testid="worst">
        <thead>
          <tr>
            <th>index</th>
            <th>reference</th>
            <th>target</th>
            <th>difference</th>
          </tr>
        </thead>
        <tbody>
          {worst.slice(0, unfolded.value ? undefined : FIRST).map((one) => (
            <tr>
              <td>
                {shape.length ? (
                  <button class="link plain" title="Show it in the tensors" onClick={() => lookAt(one.index)}>
                    [{one.index.join(", ")}]
                  </button>
                ) : (
                  "scalar"
                )}
              </td>
              <td>{text(one.reference)}</td>
              <td>{text(one.target)}</td>
              <td>{text(one.difference)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
