import { createRoot } from "react-dom/client";
import { App } from "./app/App";
import { live } from "./lib/live";

live.start();
createRoot(document.getElementById("root")!).render(<App />);
