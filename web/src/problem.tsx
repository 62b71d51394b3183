// An error as the page shows it: one sentence, and what to do about it.
import type { JSX } from "preact";
import type { Problem } from "./api/source";

export function ProblemText({ problem }: { problem: Problem }): JSX.Element {
  return (
    <div class="problem">
      <p>{problem.problem}</p>
      {problem.cure && <p class="cure">Fix: {problem.cure}</p>}
    </div>
  );
}

/** The same in one line, for a tooltip or an exception. */
export function problemLine(problem: Problem): string {
  return problem.cure ? `${problem.problem}. Fix: ${problem.cure}` : problem.problem;
}
