import { expect, test } from "vitest";
import { present } from "../src/lib/raft";
import type { RaftGroup } from "../src/lib/types";

const group = (partition: number, in_sync: number[]): RaftGroup => ({ topic: "orders", partition, leader: 1, in_sync, replicas: [], term: 1 } as unknown as RaftGroup);

test("a group that was chosen is shown as the list has it now", () => {
  const chosen = group(0, [1]);
  const now = group(0, [1, 2]);
  expect(present(chosen, [group(1, [1]), now])).toBe(now);
});

test("a group that is not listed any more is shown as it was", () => {
  const chosen = group(0, [1]);
  expect(present(chosen, [group(1, [1])])).toBe(chosen);
  expect(present(null, [chosen])).toBeNull();
});
