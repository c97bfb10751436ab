"""What the core knows of studies: many runs side by side, and their reports."""

from federatedscope_ggeur.extras import Command, Manifest

_STUDY, _REPORT = f"{__package__}.command", f"{__package__}.report"

MANIFEST = Manifest(
    {
        "quickstart": Command(
            f"{__package__}.quickstart",
            "",
            "compare methods on bundled digits, in under a minute",
            "runs",
        ),
        "study": Command(
            _STUDY,
            "[FILE]",
            "run methods, data sets and seeds side by side; can tune, and goes on "
            "after an interruption",
            "runs",
        ),
        "compare": Command(
            _REPORT,
            "RUN RUN...",
            "print runs side by side, with intervals and p-values",
        ),
        "report": Command(
            _REPORT, "FOLDER...", "write tables and figures of runs and studies"
        ),
    },
    needs=("inspect",),  # its table of who holds what
    public={"Comparison": f"{__package__}.comparison"},
    formerly={"reporting.paper": f"{__package__}.paper"},
)
