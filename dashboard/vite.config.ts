import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// `npm run dev` shows the sources beside a running gateway: DRMQ_GATEWAY_URL, or the default port.
const gateway = "http://127.0.0.1:8080";

export default defineConfig({
  plugins: [react()],
  build: {
    outDir: "../src/drmq/gateway/static",
    emptyOutDir: true,
    manifest: true,
    // Everything from the gateway itself: the content security policy allows no inline scripts.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 600,
    reportCompressedSize: false,
  },
  server: { proxy: { "/api": { target: gateway, ws: true } } },
});
