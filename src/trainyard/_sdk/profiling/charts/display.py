"""Shows charts: in a notebook when they are made and when they are updated, elsewhere as a page that is saved."""

import functools
import sys
from pathlib import Path
from typing import Any

from trainyard.foundation.extras import extra_of

try:
    from bokeh.embed import file_html
    from bokeh.resources import INLINE
except ModuleNotFoundError as error:
    raise (extra_of(error) or error) from error

# A UIElement of Bokeh: a figure, or a layout of figures.
Layout = Any


class NotebookChart:
    """The base of the charts. A notebook shows a chart when it is made, and again whatever changes in it."""

    layout: Layout = None
    target: Any = None

    def save(self, path: str | Path) -> None:
        """Write the chart as a self-contained HTML page.

        Args:
            path: Path of the file.
        """
        Path(path).write_text(str(file_html(self.layout, INLINE, type(self).__name__)))

    def _show(self, layout: Layout) -> None:
        self.layout = layout
        self.target = _show_in_notebook(layout)

    def _push(self) -> None:
        """Bring the changes of the data to the notebook."""
        if self.target is not None:
            from bokeh.io import push_notebook

            push_notebook(handle=self.target)


def _show_in_notebook(layout: Layout) -> Any:
    """Show a layout and return its handle; None outside of notebooks."""
    if not _is_notebook():
        return None
    from bokeh.io import show

    _load_bokeh()
    return show(layout, notebook_handle=True)


@functools.cache
def _load_bokeh() -> None:
    """Give the notebook Bokeh's own code, once. It need not come from a network."""
    from bokeh.io import output_notebook

    output_notebook(INLINE, hide_banner=True)


def _is_notebook() -> bool:
    # Only a notebook has imported it.
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None
