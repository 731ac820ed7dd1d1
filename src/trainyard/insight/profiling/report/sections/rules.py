"""The rules of the job: what each looked for, what it found, and what to do; those with most findings first."""

from collections.abc import Mapping, Sequence

from trainyard.foundation.jobs.status import RuleStatus
from trainyard.insight.profiling.report.contract import ReportedRule, ReportSource
from trainyard.insight.profiling.report.json_values import to_json_value
from trainyard.insight.profiling.report.markup import NOTHING, Html, element, join
from trainyard.insight.profiling.report.sections.rule_plots import draw_rule
from trainyard.insight.profiling.report.sections.section import Section
from trainyard.insight.profiling.report.tables import TableColumn, draw_facts, draw_table, number_columns, text_columns
from trainyard.insight.profiling.report.units import UNKNOWN, duration_text, number_text

# Of one rule, in full.
MAX_FINDINGS = 12
# Of a member of a rule's details that is a list, or of the members of one that is an object.
MAX_DETAILS = 20

_STATUS_TEXT: Mapping[RuleStatus, str] = {
    RuleStatus.IN_PROGRESS: "in progress",
    RuleStatus.NO_ISSUES_FOUND: "no issues found",
    RuleStatus.ISSUES_FOUND: "issues found",
    RuleStatus.ERROR: "error",
    RuleStatus.STOPPING: "stopping",
    RuleStatus.STOPPED: "stopped",
}


def write_rules(source: ReportSource) -> Section | None:
    if not source.rules:
        return None
    rules = sorted(source.rules, key=lambda each: (-len(each.check.findings), -each.check.violations, each.name))
    triggered = sum(bool(each.check.findings) for each in rules)
    lead = f"{triggered} of {len(rules)} rules found something." if triggered else "No rule found anything."
    drawn = [_rule(each, source, _anchor(number)) for number, each in enumerate(rules)]
    quiet = drawn[triggered:]
    others = element("details", element("summary", _quiet_text(triggered, len(quiet))), *quiet, class_="quiet")
    body = join([_summary(rules), *drawn[:triggered], others if quiet else None])
    return Section("rules", "Rules", body, lead, str(triggered) if triggered else "")


def _quiet_text(triggered: int, quiet: int) -> str:
    if not triggered:
        return "What the rules looked for, their parameters and details"
    return "The other rule in detail" if quiet == 1 else f"The other {quiet} rules in detail"


def _summary(rules: Sequence[ReportedRule]) -> Html:
    rows = [
        (
            element("a", each.name, href=f"#{_anchor(number)}"),
            _status(each),
            number_text(len(each.check.findings)),
            number_text(each.check.violations),
            number_text(each.check.datapoints),
            each.recommendation if each.check.findings else each.check.undecided or UNKNOWN,
        )
        for number, each in enumerate(rules)
    ]
    numbers = number_columns("Times triggered", "Violations", "Datapoints")
    columns = [*text_columns("Rule", "Status"), *numbers, TableColumn("What to do", is_prose=True)]
    return draw_table("Rules summary", columns, rows)


def _anchor(number: int) -> str:
    return f"rule-{number}"


def _status(rule: ReportedRule) -> Html:
    if rule.check.undecided and rule.status is RuleStatus.NO_ISSUES_FOUND:
        return element("span", "not judged", class_="chip")
    tone = {RuleStatus.ISSUES_FOUND: "warn", RuleStatus.NO_ISSUES_FOUND: "good", RuleStatus.ERROR: "bad"}
    return element("span", _STATUS_TEXT[rule.status], class_=f"chip {tone.get(rule.status, '')}".strip())


def _rule(rule: ReportedRule, source: ReportSource, anchor: str) -> Html:
    found = rule.check.findings
    head = element("summary", element("strong", rule.name), " ", _status(rule))
    about = f"{rule.rule}: {rule.purpose}" if rule.name != rule.rule else rule.purpose
    parts = [
        head,
        element("p", about),
        element("p", element("b", "What to do: "), rule.recommendation) if found else None,
        element("p", rule.check.undecided, class_="callout") if rule.check.undecided else None,
        _findings(rule, source.profile.started_us),
        draw_rule(rule, source) if found else None,
        _parameters(rule.parameters),
        _details(rule.check.details),
    ]
    return element("details", *parts, class_="rule", id=anchor, open="" if found else None)


def _findings(rule: ReportedRule, started_us: int) -> Html:
    found = rule.check.findings
    items = []
    for finding in found[:MAX_FINDINGS]:
        where = [each for each in (finding.host, finding.worker, finding.device) if each]
        if finding.started_us is not None:
            where.append(f"{duration_text(max(0, finding.started_us - started_us) / 1e6)} after the start")
        aside = element("span", ", ".join(where), class_="aside") if where else None
        items.append(element("li", finding.message, " ", aside, class_=finding.severity.value))
    if len(found) > MAX_FINDINGS:
        items.append(element("li", f"{len(found) - MAX_FINDINGS:,} more findings", class_="aside"))
    return element("ul", *items, class_="findings") if items else NOTHING


def _parameters(parameters: Mapping[str, object]) -> Html:
    if not parameters:
        return NOTHING
    codes = [element("code", f"{name}={value}") for name, value in parameters.items()]
    return element("p", "Parameters: ", join(codes, " "), class_="aside")


def _details(details: Mapping[str, object]) -> Html:
    if not details:
        return NOTHING
    return element("details", element("summary", "Details"), _value(to_json_value(details), 0))


def _value(value: object, depth: int) -> Html:
    """Show any JSON value: lists of objects as tables, objects as names with values."""
    if isinstance(value, dict) and depth < 4:
        pairs = [(str(name), _value(member, depth + 1)) for name, member in list(value.items())[:MAX_DETAILS]]
        return join([draw_facts(pairs), _left_out(len(value))])
    if isinstance(value, list) and depth < 4:
        if value and all(isinstance(each, dict) for each in value):
            return _records(value)
        shown = ", ".join(_scalar(each) for each in value[:MAX_DETAILS])
        return element("span", shown or UNKNOWN, _left_out(len(value)))
    return element("span", _scalar(value))


def _records(records: list[dict[str, object]]) -> Html:
    names = list(dict.fromkeys(name for record in records for name in record))
    rows = [[_scalar(record.get(name)) for name in names] for record in records]
    return draw_table("Details", text_columns(*names), rows, limit=MAX_DETAILS) if names else NOTHING


def _left_out(count: int) -> Html | None:
    return element("span", f" and {count - MAX_DETAILS:,} more", class_="aside") if count > MAX_DETAILS else None


def _scalar(value: object) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number_text(value, digits=4)
    return str(value)[:400]
