import {
  ArrowSwitchIcon, BeakerIcon, BroadcastIcon, GearIcon, GitMergeIcon, GraphIcon, HomeIcon, LogIcon, MailIcon, PeopleIcon, ServerIcon, StackIcon, WorkflowIcon, ZapIcon, type Icon,
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

export const ROUTES: { path: string; Page: ComponentType }[] = [
  { path: "/", Page: page(() => import("../features/overview/OverviewPage")) },
  { path: "/topics", Page: page(() => import("../features/topics/TopicsPage")) },
  { path: "/topics/:topic/:tab?", Page: page(() => import("../features/topic/TopicPage")) },
  { path: "/tail", Page: page(() => import("../features/tail/TailPage")) },
  { path: "/topology", Page: page(() => import("../features/topology/TopologyPage")) },
  { path: "/groups", Page: page(() => import("../features/groups/GroupsPage")) },
  { path: "/groups/:group/:tab?", Page: page(() => import("../features/groups/GroupPage")) },
  { path: "/dead-letters", Page: page(() => import("../features/letters/LetterTopicsPage")) },
  { path: "/dead-letters/:topic", Page: page(() => import("../features/letters/LetterTopicPage")) },
  { path: "/transactions", Page: page(() => import("../features/transactions/TransactionsPage")) },
  { path: "/pipelines", Page: page(() => import("../features/pipelines/PipelinesPage")) },
  { path: "/raft", Page: page(() => import("../features/raft/RaftPage")) },
  { path: "/brokers", Page: page(() => import("../features/brokers/BrokersPage")) },
  { path: "/brokers/:node/:tab?", Page: page(() => import("../features/brokers/BrokerPage")) },
  { path: "/explore", Page: page(() => import("../features/explore/ExplorePage")) },
  { path: "/events", Page: page(() => import("../features/events/EventsPage")) },
  { path: "/lab", Page: page(() => import("../features/lab/LabPage")) },
  { path: "/settings", Page: page(() => import("../features/settings/SettingsPage")) },
];

export interface NavItem {
  to: string;
  label: string;
  icon: Icon;
}

/** The pages in the order of the menu, by what they are about. */
export const SECTIONS: { name: string; items: NavItem[] }[] = [
  { name: "", items: [{ to: "/", label: "Overview", icon: HomeIcon }] },
  {
    name: "Messages",
    items: [
      { to: "/topics", label: "Topics", icon: StackIcon },
      { to: "/tail", label: "Live tail", icon: BroadcastIcon },
      { to: "/topology", label: "Topology", icon: WorkflowIcon },
    ],
  },
  {
    name: "Work",
    items: [
      { to: "/groups", label: "Groups", icon: PeopleIcon },
      { to: "/dead-letters", label: "Dead letters", icon: MailIcon },
      { to: "/transactions", label: "Transactions", icon: ArrowSwitchIcon },
      { to: "/pipelines", label: "Pipelines", icon: ZapIcon },
    ],
  },
  {
    name: "Cluster",
    items: [
      { to: "/brokers", label: "Brokers", icon: ServerIcon },
      { to: "/raft", label: "Consensus", icon: GitMergeIcon },
      { to: "/explore", label: "Explore", icon: GraphIcon },
      { to: "/events", label: "Events", icon: LogIcon },
      { to: "/lab", label: "Fault lab", icon: BeakerIcon },
    ],
  },
  { name: "", items: [{ to: "/settings", label: "Settings", icon: GearIcon }] },
];

export const NAVIGATION: NavItem[] = SECTIONS.flatMap((each) => each.items);
