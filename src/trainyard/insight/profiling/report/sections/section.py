"""A section of the page."""

from dataclasses import dataclass

from trainyard.insight.profiling.report.markup import Html, element


@dataclass(frozen=True, slots=True)
class Section:
    """`anchor` is what links lead to; `count`, if any, stands beside the title in the list of sections."""

    anchor: str
    title: str
    body: Html
    lead: str = ""
    count: str = ""
    short_title: str = ""  # in the list of sections

    def draw(self) -> Html:
        lead = element("p", self.lead, class_="lead") if self.lead else None
        heading = f"{self.anchor}-title"
        return element(
            "section", element("h2", self.title, id=heading), lead, self.body, id=self.anchor, aria_labelledby=heading
        )


def subsection(title: str, *parts: str | None) -> Html:
    return element("div", element("h3", title), *parts, class_="sub")
