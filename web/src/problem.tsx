// What went wrong, in the parts that every error has.
import type { JSX } from "preact";
import type { Problem } from "./api/source";

export function ProblemParts({ problem }: { problem: Problem }): JSX.Element {
  return (
    <dl class="ev">
      <dt>expected</dt>
      <dd>{problem.expected}</dd>
      <dt>found</dt>
      <dd>{problem.found}</dd>
      {problem.cure && <dt>cure</dt>}
      {problem.cure && <dd>{problem.cure}</dd>}
    </dl>
  );
}
