"""The pages of the dashboard: one folder each, with a module `routes` that declares its `PAGE`."""

from trainyard.server.dashboard.contract import Page
from trainyard.server.dashboard.pages.admin.routes import PAGE as ADMIN
from trainyard.server.dashboard.pages.compare.routes import PAGE as COMPARE
from trainyard.server.dashboard.pages.debugger.routes import PAGE as DEBUGGER
from trainyard.server.dashboard.pages.definition.routes import PAGE as DEFINITION
from trainyard.server.dashboard.pages.files.routes import PAGE as FILES
from trainyard.server.dashboard.pages.job.routes import PAGE as JOB
from trainyard.server.dashboard.pages.job_actions.routes import PAGE as JOB_ACTIONS
from trainyard.server.dashboard.pages.jobs.routes import PAGE as JOBS
from trainyard.server.dashboard.pages.logs.routes import PAGE as LOGS
from trainyard.server.dashboard.pages.processing_job.routes import PAGE as PROCESSING_JOB
from trainyard.server.dashboard.pages.profiler.routes import PAGE as PROFILER
from trainyard.server.dashboard.pages.search.routes import PAGE as SEARCH
from trainyard.server.dashboard.pages.sign_in.routes import PAGE as SIGN_IN
from trainyard.server.dashboard.pages.tuning.routes import PAGE as TUNING

PAGES: tuple[Page, ...] = (
    SIGN_IN,
    SEARCH,
    JOBS,
    JOB,
    JOB_ACTIONS,
    PROCESSING_JOB,
    LOGS,
    FILES,
    DEFINITION,
    COMPARE,
    DEBUGGER,
    PROFILER,
    ADMIN,
    TUNING,
)
