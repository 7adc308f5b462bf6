(function () {
  var chosen = "auto";
  try {
    chosen = localStorage.getItem("drmq-theme") || "auto";
  } catch (error) {
    // Storage is forbidden: the system's theme.
  }
  var dark = chosen === "dark" || (chosen !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.setAttribute("data-mantine-color-scheme", dark ? "dark" : "light");
  document.documentElement.style.backgroundColor = dark ? "#14171c" : "#f6f7f9";
})();
