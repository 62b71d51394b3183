import { render } from "preact";
import "./tokens.css";
import "./app.css";
import { liveSource } from "./api/live";
import { reportData, reportSource } from "./api/report";
import type { Source } from "./api/source";
import { Frame } from "./frame";
import { recallSession } from "./session_link";
import { follow } from "./navigator/lines";
import { Session } from "./session/session";
import { start } from "./state";
import { showOnlyVisible } from "./escape_text";

showOnlyVisible();
const root = document.getElementById("app") as HTMLElement;

function show(source: Source): void {
  // For tests and for the curious: the same questions that the panes ask.
  Object.assign(window, { syncpoint: { source } });
  start(source);
  follow();
  render(<Frame />, root);
}

const named = /^\/c\/([^/]+)$/.exec(location.pathname)?.[1];
void reportData().then((data) => {
  if (data) show(reportSource(data));
  else if (named) {
    recallSession();
    show(liveSource(decodeURIComponent(named)));
  } else render(<Session />, root);
});
