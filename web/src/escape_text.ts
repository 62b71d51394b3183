// Names of others are shown, never obeyed: what hides text or turns its direction becomes an escape.
// One place for all panes: every text that Preact puts on the page and every text on a canvas passes
// here. Names in requests and in the address stay as they are. The rule is that of foreign_text.py;
// line breaks and tabs may stay, since a page decides itself where they count.
import { options, type VNode } from "preact";

const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{d800}-\u{dfff}\u{e0000}-\u{e0fff}]/gu;
const TEXTS = ["title", "aria-label", "placeholder", "alt"] as const;

/** The text with every character escaped that hides, or changes how others are shown. */
export function visible(text: string): string {
  return text.replace(HIDDEN, (letter) => {
    const code = letter.codePointAt(0) as number;
    const digits = code.toString(16);
    if (code < 0x100) return `\\x${digits.padStart(2, "0")}`;
    return code < 0x10000 ? `\\u${digits.padStart(4, "0")}` : `\\U${digits.padStart(8, "0")}`;
  });
}

/** Have all that is shown from now on pass through `visible`. */
export function showOnlyVisible(): void {
  const before = options.vnode;
  options.vnode = (vnode: VNode) => {
    // Preact makes a node of type null for each text; its props are the text.
    const node = vnode as unknown as { type: unknown; props: string | Record<string, unknown> };
    if (typeof node.props === "string") node.props = visible(node.props);
    else if (typeof node.type === "string") {
      for (const name of TEXTS) {
        const text = node.props[name];
        if (typeof text === "string") node.props[name] = visible(text);
      }
    }
    before?.(vnode);
  };
  const canvas = CanvasRenderingContext2D.prototype;
  const { fillText, measureText } = canvas;
  canvas.fillText = function (text, ...place) {
    fillText.call(this, visible(text), ...place);
  };
  canvas.measureText = function (text) {
    return measureText.call(this, visible(text));
  };
}
