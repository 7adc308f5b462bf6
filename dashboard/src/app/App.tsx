import { localStorageColorSchemeManager, MantineProvider } from "@mantine/core";
import "@mantine/core/styles.css";
import { QueryClientProvider } from "@tanstack/react-query";
import { BrowserRouter } from "react-router";
import { client } from "../lib/query";
import { Shell } from "./Shell";
import { theme, variables } from "./theme";
import "./app.css";

const schemes = localStorageColorSchemeManager({ key: "drmq-theme" });

export function App() {
  return (
    <MantineProvider theme={theme} cssVariablesResolver={variables} colorSchemeManager={schemes} defaultColorScheme="auto">
      <QueryClientProvider client={client}>
        <BrowserRouter>
          <Shell />
        </BrowserRouter>
      </QueryClientProvider>
    </MantineProvider>
  );
}
