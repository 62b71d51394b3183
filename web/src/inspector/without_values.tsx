// Pairs of which less than the values was kept.
import type { JSX } from "preact";
import type { RowDetail } from "../api/source";
import { numeric, plain } from "../numbers";

const NAMES: Record<string, string> = { max: "max", min: "min", mean: "mean", std: "deviation", l2: "L2 norm", nan: "NaN", inf: "infinite" };

export function Statistics({ rowDetail }: { rowDetail: RowDetail }): JSX.Element {
  const text = (value: Parameters<typeof numeric>[0]): string => {
    const number = numeric(value);
    return number === null ? "–" : plain(number, 4);
  };
  const share = (value: Parameters<typeof numeric>[0]): string => {
    const number = numeric(value);
    return number === null ? "–" : `${plain(number * 100, 2)} %`;
  };
  return (
    <div class="sec">
      <h3>
        Statistics <span class="sp" />
        <span>basis: statistics</span>
      </h3>
      <table class="wt" data-testid="statistics">
        <thead>
          <tr>
            <th>statistic</th>
            <th>reference</th>
            <th>target</th>
            <th>relative difference</th>
          </tr>
        </thead>
        <tbody>
          {rowDetail.statistics.map((row) => (
            <tr>
              <td>{NAMES[row.name] ?? row.name}</td>
              <td>{text(row.reference)}</td>
              <td>{text(row.target)}</td>
              <td>{share(row.relative)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="aside">Statistics can prove a difference but not equality.</p>
    </div>
  );
}

export function Digest({ rowDetail }: { rowDetail: RowDetail }): JSX.Element {
  const kind = rowDetail.target.digest_kind || rowDetail.reference.digest_kind;
  return (
    <div class="sec">
      <h3>
        Digest <span class="sp" />
        <span>{kind}</span>
      </h3>
      <p data-testid="digest">
        {rowDetail.same_bytes ? "The bytes of both sides are equal." : "The bytes differ; a digest does not show by how much."}
      </p>
      {(rowDetail.target.digest || rowDetail.reference.digest) && (
        <dl class="ev mono">
          <dt>target</dt>
          <dd class="cut">{rowDetail.target.digest || "–"}</dd>
          <dt>reference</dt>
          <dd class="cut">{rowDetail.reference.digest || "–"}</dd>
        </dl>
      )}
    </div>
  );
}
