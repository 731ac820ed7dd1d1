from tests.report_pages import read_page
from trainyard.insight.profiling.report.tables import TableColumn, draw_facts, draw_table, number_columns


def test_a_table_has_a_caption_and_heads_for_its_rows_and_columns() -> None:
    page = read_page(draw_table("Steps", [TableColumn("Worker"), *number_columns("Mean")], [("worker_0", "5 ms")]))
    assert page.table("Steps") == [{"Worker": "worker_0", "Mean": "5 ms"}]
    assert [each.attributes["scope"] for each in page.find_all("th")] == ["col", "col", "row"]
    scroll = page.find(of_class="scroll").attributes
    assert (scroll["tabindex"], scroll["role"], scroll["aria-label"]) == ("0", "region", "Steps")


def test_rows_that_are_left_out_are_counted() -> None:
    page = read_page(
        draw_table("Steps", [TableColumn("Step")], [[str(number)] for number in range(30)], limit=10, of_what="steps")
    )
    assert len(page.table("Steps")) == 10
    assert page.find("p").text == "20 more steps are left out."


def test_an_empty_table_is_nothing() -> None:
    assert draw_table("Steps", [TableColumn("Step")], []) == ""


def test_facts_without_a_value_are_left_out() -> None:
    page = read_page(draw_facts([("Region", "eu-west-1"), ("ARN", "")]))
    assert [(each.find("dt").text, each.find("dd").text) for each in page.find("dl").find_all("div")] == [
        ("Region", "eu-west-1")
    ]
