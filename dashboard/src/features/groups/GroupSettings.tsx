import { EditSettings } from "../../components/EditSettings";
import { path } from "../../lib/api";

export function GroupSettings({ group }: { group: string }) {
  return <EditSettings at={path`/groups/${group}/settings`} of={<>group <strong>{group}</strong></>} />;
}
