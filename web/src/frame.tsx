// Four panes around one selection, and the drift under them.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { serverLostSince } from "./api/live";
import { Code } from "./code/code";
import { Drift } from "./drift/drift";
import { Findings } from "./findings/findings";
import { Overview } from "./findings/overview";
import { Alone } from "./inspector/unmatched";
import { Inspector } from "./inspector/inspector";
import { inSession } from "./session_link";
import { Help, keys } from "./keyboard";
import { Navigator } from "./navigator/navigator";
import { ProblemText } from "./problem";
import { MiddleSplitter, Splitters } from "./splitters";
import { Structure } from "./structure/structure";
import { short, TopBar } from "./topbar";
import * as state from "./state";
import { visible } from "./escape_text";

export function Frame(): JSX.Element {
  useEffect(() => {
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, []);
  const whole = state.overview.value;
  useEffect(() => {
    if (whole) document.title = visible(`${short(whole.target.label)} against ${short(whole.reference.label)} · Syncpoint`);
  }, [whole]);
  return (
    <div class="frame">
      <TopBar />
      {state.failure.value ? <Broken /> : <Panes />}
      <ServerLost />
      <Help />
    </div>
  );
}

function Panes(): JSX.Element {
  const chosen = state.selected.value !== null;
  const [overview, setOverview] = useState<boolean | null>(null);
  useEffect(() => setOverview(null), [state.selected.value]);
  const showOverview = overview ?? !chosen;
  return (
    <>
      <Navigator />
      <main class="midw">
        <Structure />
        <section class="pane" aria-label={showOverview ? "Overview" : "Source"}>
          <div class="head">
            <div class="tabs" role="tablist">
              <button role="tab" aria-selected={!showOverview} onClick={() => setOverview(false)}>
                Source
              </button>
              <button role="tab" aria-selected={showOverview} onClick={() => setOverview(true)}>
                Overview
              </button>
            </div>
            <div class="crumb" id="crumb" />
          </div>
          {showOverview ? <Overview /> : <Code />}
        </section>
        <MiddleSplitter />
      </main>
      {chosen ? <Inspector /> : state.alone.value ? <Alone one={state.alone.value} /> : <Findings />}
      <Drift />
      <Splitters />
    </>
  );
}

function Broken(): JSX.Element {
  const problem = state.failure.value;
  return (
    <div class="broken">
      <section role="alert">
        <b>This comparison cannot be shown</b>
        {problem && <ProblemText problem={problem} />}
        {serverLostSince.value !== null ? (
          <button class="btn" onClick={state.tryAgain}>
            Try now
          </button>
        ) : (
          inSession.value && (
            <a class="btn" href="/">
              All comparisons
            </a>
          )
        )}
      </section>
    </div>
  );
}

/** What is on screen stays when the server does not answer; it is asked again now and then. */
function ServerLost(): JSX.Element | null {
  const [secondsLeft, setSecondsLeft] = useState(0);
  const since = serverLostSince.value;
  useEffect(() => {
    if (since === null) return;
    let seconds = 5;
    setSecondsLeft(seconds);
    const timer = setInterval(() => {
      seconds -= 1;
      setSecondsLeft(Math.max(seconds, 0));
      if (seconds === 0) state.tryAgain();
    }, 1000);
    return () => clearInterval(timer);
  }, [since]);
  if (since === null) return null;
  return (
    <div class="gone" role="alert">
      <b>The session at {location.host} does not answer.</b> What is on screen stays. Trying again in {secondsLeft} s.
      <button class="btn s" onClick={state.tryAgain}>
        Try now
      </button>
    </div>
  );
}
