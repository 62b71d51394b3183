// Questions that a pane asks again and again while something is dragged.
import { useEffect, useRef, useState } from "preact/hooks";
import { back } from "./api/live";
import { problemOf, type Problem } from "./api/source";

export interface Answer<T> {
  value: T | null;
  problem: Problem | null;
  /** The question that `value` answers. */
  key: string;
}

/**
 * The answer to the latest question; the one before it stays until then. No more than one is on
 * its way: what is asked meanwhile waits, and only the last of it is asked.
 */
export function useLatest<T>(key: string | null, ask: () => Promise<T>): Answer<T> {
  const [answer, setAnswer] = useState<Answer<T>>({ value: null, problem: null, key: "" });
  const now = useRef({ busy: false, alive: true, key: null as string | null, done: null as string | null, ask });
  now.current.key = key;
  now.current.ask = ask;
  const next = (): void => {
    const it = now.current;
    if (it.busy || it.key === null || it.key === it.done) return;
    const requestedKey = it.key;
    it.busy = true;
    const settle = (value: T | null, problem: Problem | null): void => {
      it.busy = false;
      it.done = requestedKey;
      if (!it.alive) return;
      setAnswer({ value, problem, key: requestedKey });
      next();
    };
    it.ask().then(
      (value) => settle(value, null),
      (error: unknown) => settle(null, problemOf(error)),
    );
  };
  useEffect(next, [key]);
  useEffect(() => {
    if (!answer.problem) return;
    now.current.done = null;
    next();
  }, [back.value]);
  useEffect(() => {
    now.current.alive = true;
    return () => {
      now.current.alive = false;
    };
  }, []);
  return answer;
}
