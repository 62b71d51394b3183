import { render } from "preact";
import "./tokens.css";
import "./app.css";
import { liveSource } from "./api/live";
import { Frame } from "./frame";
import { follow } from "./navigator/lines";
import { Session } from "./session/session";
import { start } from "./state";

const root = document.getElementById("app") as HTMLElement;
const named = /^\/c\/([^/]+)$/.exec(location.pathname)?.[1];
if (named) {
  start(liveSource(decodeURIComponent(named)));
  follow();
  render(<Frame />, root);
} else {
  render(<Session />, root);
}
