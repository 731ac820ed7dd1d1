"""A browser that is signed in to the dashboard of a yard."""

from contextlib import closing
from urllib.parse import urljoin

from tests.browser.chromium import Browser, Page
from trainyard._sdk.connection import Access, endpoint_access
from trainyard.testing.yard import RunningYard


def access_of(yard: RunningYard) -> Access:
    """Return the access of the yard's administrator."""
    return endpoint_access(yard.http, yard.environment())


def sign_in(browser: Browser, yard: RunningYard, *, access: Access | None = None, width: int = 1280) -> Page:
    """Open a page of the browser and follow a one-time link, as `trainyard open` does."""
    with closing((access or access_of(yard)).client()) as api:
        link = api.call("trainyard", "CreateSignInLink")["Path"]
    page = browser.open_page()
    page.show_as(width=width)
    page.open_url(urljoin(yard.http, link))
    return page


def assert_is_quiet(page: Page, yard: RunningYard) -> None:
    """The page logged nothing, and asked nobody but the yard for anything."""
    page.evaluate("1")
    assert page.logged == []
    assert [url for url in page.requested if not url.startswith((yard.http, "data:", "blob:"))] == []
