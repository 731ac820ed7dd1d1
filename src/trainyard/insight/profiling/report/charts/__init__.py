"""Charts as HTML and SVG that need no script: they stretch with the page, print, and follow its colours."""
