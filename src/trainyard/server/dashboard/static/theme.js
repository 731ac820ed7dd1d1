// Sets the colours before the page is drawn. A classic script, because modules run only after that.
(() => {
  const stored = localStorage.getItem("trainyard-theme");
  document.documentElement.dataset.theme = ["light", "dark"].includes(stored) ? stored : "auto";
})();
