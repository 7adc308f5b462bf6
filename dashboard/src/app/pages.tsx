import {
  GearIcon, GitMergeIcon, HomeIcon, LogIcon, PeopleIcon, ServerIcon, StackIcon, type Icon,
} from "@primer/octicons-react";
import { lazy, type ComponentType } from "react";

/** A page is a chunk of its own. When its gateway is gone, the chunk is loaded by going to another one. */
function page(load: () => Promise<{ default: ComponentType }>) {
  loaders.push(load);
  return lazy(load);
}

const loaders: (() => Promise<unknown>)[] = [];

/** Loads the other pages while nothing else happens, so that they are there when this gateway is not. */
export function loadAllPages(): void {
  void loaders.reduce((before, load) => before.then(load).then(() => undefined), Promise.resolve() as Promise<void>).catch(() => undefined);
}

export const OverviewPage = page(() => import("../features/overview/OverviewPage"));
export const TopicsPage = page(() => import("../features/topics/TopicsPage"));
export const TopicPage = page(() => import("../features/topic/TopicPage"));
export const GroupsPage = page(() => import("../features/groups/GroupsPage"));
export const GroupPage = page(() => import("../features/groups/GroupPage"));
export const RaftPage = page(() => import("../features/raft/RaftPage"));
export const BrokersPage = page(() => import("../features/brokers/BrokersPage"));
export const BrokerPage = page(() => import("../features/brokers/BrokerPage"));
export const EventsPage = page(() => import("../features/events/EventsPage"));
export const SettingsPage = page(() => import("../features/settings/SettingsPage"));

export interface NavItem {
  to: string;
  label: string;
  icon: Icon;
}

export const NAVIGATION: NavItem[] = [
  { to: "/", label: "Overview", icon: HomeIcon },
  { to: "/topics", label: "Topics", icon: StackIcon },
  { to: "/groups", label: "Groups", icon: PeopleIcon },
  { to: "/raft", label: "Consensus", icon: GitMergeIcon },
  { to: "/brokers", label: "Brokers", icon: ServerIcon },
  { to: "/events", label: "Events", icon: LogIcon },
  { to: "/settings", label: "Settings", icon: GearIcon },
];

