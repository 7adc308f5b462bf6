import { createTheme, type CSSVariablesResolver, type MantineColorsTuple } from "@mantine/core";

const blue: MantineColorsTuple = [
  "#eef4ff", "#dbe6fe", "#bfd3fe", "#93b4fd", "#6f9bfb", "#3b6ef6", "#2553eb", "#1d40d8", "#1e36af", "#1e318a",
];

/** Mantine's dark greys with a touch of blue, so that fields and cards are of one family. */
const dark: MantineColorsTuple = [
  "#d5d9e0", "#b7bec9", "#98a1ae", "#69717e", "#414954", "#363c46", "#242931", "#1b1f25", "#14171c", "#0f1115",
];

export const theme = createTheme({
  primaryColor: "blue",
  primaryShade: { light: 6, dark: 6 },
  colors: { blue, dark },
  fontFamily: 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif',
  fontFamilyMonospace: 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace',
  defaultRadius: "md",
  headings: { fontWeight: "650", sizes: { h1: { fontSize: "1.5rem", lineHeight: "1.3" }, h2: { fontSize: "1.0625rem", lineHeight: "1.4" } } },
  focusRing: "auto",
  respectReducedMotion: true,
  cursorType: "pointer",
});

/** Mantine's grey for secondary text is too light for WCAG AA, in both schemes. */
export const variables: CSSVariablesResolver = () => ({
  variables: {},
  light: {
    "--mantine-color-dimmed": "#565e6b",
    "--mantine-color-placeholder": "#68707d",
    "--mantine-color-body": "#f6f7f9",
    "--mantine-color-text": "#1b1f26",
    "--mantine-color-default-border": "#d9dde3",
    "--surface": "#ffffff",
    "--surface-2": "#f0f2f5",
    "--line": "#e3e6ea",
    "--good": "#15703f",
    "--warn": "#8f5300",
    "--bad": "#b3261e",
    "--good-soft": "#e4f5ec",
    "--warn-soft": "#fdf1dc",
    "--bad-soft": "#fdeceb",
    "--bar": "#2553eb",
    "--bar-track": "#e3e6ea",
    "--chart-1": "#2553eb",
    "--chart-2": "#b4540a",
    "--chart-3": "#0f766e",
    "--chart-4": "#9333c6",
    "--chart-5": "#be185d",
    "--chart-6": "#4d6b0f",
    "--chart-grid": "#e9ebef",
    "--chart-text": "#565e6b",
  },
  dark: {
    "--mantine-color-dimmed": "#a2aab6",
    "--mantine-color-placeholder": "#959daa",
    "--mantine-color-body": "#14171c",
    "--mantine-color-text": "#e4e7ec",
    "--mantine-color-default-border": "#363c46",
    "--mantine-color-default": "#1f242b",
    "--mantine-color-default-hover": "#272d35",
    "--mantine-color-anchor": "#8db0fd",
    "--surface": "#1b1f25",
    "--surface-2": "#242931",
    "--line": "#2c323b",
    "--good": "#5fd497",
    "--warn": "#f2b75c",
    "--bad": "#ff8f86",
    "--good-soft": "#16301f",
    "--warn-soft": "#352812",
    "--bad-soft": "#3a1a18",
    "--bar": "#6f9bfb",
    "--bar-track": "#2c323b",
    "--chart-1": "#7ea6ff",
    "--chart-2": "#f2a65c",
    "--chart-3": "#4fd1c5",
    "--chart-4": "#cf9bf5",
    "--chart-5": "#f58ab5",
    "--chart-6": "#b5d15a",
    "--chart-grid": "#262b33",
    "--chart-text": "#a2aab6",
  },
});
