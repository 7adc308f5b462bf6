import type { Group } from "../../lib/types";

export function isLeaseGroup(group: Group): boolean {
  return group.type === "share" || group.type === "lease";
}

export function kindOf(group: Group): string {
  return isLeaseGroup(group) ? "Lease group" : "Classic group";
}
