// Where the children of a module stand: in execution order, those that wait for nothing of each
// other side by side. On the top level nothing stands above what ran before it. Linear in children
// and edges.
import type { Item } from "./model";

/** Ranks by longest path, then one sweep that puts each near what it reads. */
export function layer(module: Item, edgesKnown: boolean): void {
  const children = module.children as Item[];
  const n = children.length;
  const top = module.parent === null;
  const rank = new Int32Array(n);
  const reads: number[][] = Array.from({ length: n }, () => []);
  const readBy: number[][] = Array.from({ length: n }, () => []);
  for (const { a, b } of module.links) {
    // What runs against the order is a module that is used again; it must not pull the ranks.
    if (a >= b) continue;
    (reads[b] as number[]).push(a);
    (readBy[a] as number[]).push(b);
  }
  for (let i = 0; i < n; i++) {
    const own = reads[i] as number[];
    if (own.length) for (const a of own) rank[i] = Math.max(rank[i] as number, (rank[a] as number) + 1);
    // Alone in here: its place is its turn.
    else if (i && (!edgesKnown || !(readBy[i] as number[]).length)) rank[i] = (rank[i - 1] as number) + 1;
    if (top && i) rank[i] = Math.max(rank[i] as number, rank[i - 1] as number);
  }
  // What reads nothing in here stands right above what reads it.
  for (let i = n - 1; i >= 0; i--) {
    const next = readBy[i] as number[];
    if ((reads[i] as number[]).length || !next.length || (top && !(children[i] as Item).given)) continue;
    let least = Infinity;
    for (const b of next) least = Math.min(least, rank[b] as number);
    rank[i] = Math.max(rank[i] as number, least - 1);
  }
  const ranks: number[][] = [];
  for (let i = 0; i < n; i++) (ranks[rank[i] as number] ??= []).push(i);
  const positions = new Float64Array(n);
  module.ranks = [];
  for (const members of ranks) {
    if (!members) continue;
    if (members.length > 1 && !top) {
      const wish = new Map(members.map((i) => [i, middle(reads[i] as number[], positions)]));
      members.sort((i, j) => (wish.get(i) as number) - (wish.get(j) as number) || i - j);
    }
    members.forEach((i, place) => (positions[i] = (place + 0.5) / members.length));
    module.ranks.push(members.map((i) => children[i] as Item));
  }
}

function middle(reads: readonly number[], positions: Float64Array): number {
  if (!reads.length) return 0.5;
  let sum = 0;
  for (const a of reads) sum += positions[a] as number;
  return sum / reads.length;
}
