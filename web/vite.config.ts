import { defineConfig } from "vite";

// One script and one style sheet: the server hands them out, and a report holds them inside.
export default defineConfig({
  base: "/static/",
  build: {
    outDir: "../src/syncpoint/page/static",
    emptyOutDir: true,
    assetsDir: "",
    target: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    chunkSizeWarningLimit: 2000,
    rollupOptions: {
      output: {
        format: "iife",
        entryFileNames: "app.js",
        assetFileNames: "app[extname]",
      },
    },
  },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
});
