import { EditSettings } from "../../components/EditSettings";
import { path } from "../../lib/api";

export function TopicSettings({ topic }: { topic: string }) {
  return <EditSettings at={path`/topics/${topic}/settings`} of={<>topic <strong>{topic}</strong></>} />;
}
