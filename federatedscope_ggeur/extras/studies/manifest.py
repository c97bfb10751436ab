"""What the core knows of studies: many runs side by side, and their reports."""

from federatedscope_ggeur.extras import Manifest, commands_in

_QUICKSTART = "quickstart: compare methods on bundled digits, in under a minute"
_STUDY = """
study [FILE]: run methods, data sets and seeds side by side; can tune, and goes on after
  an interruption
"""
_REPORT = """
compare RUN RUN...: print runs side by side, with intervals and p-values
report FOLDER...: write tables and figures of runs and studies
"""

MANIFEST = Manifest(
    {
        **commands_in(f"{__package__}.quickstart", _QUICKSTART, "runs"),
        **commands_in(f"{__package__}.command", _STUDY, "runs"),
        **commands_in(f"{__package__}.report", _REPORT),
    },
    needs=("inspect",),  # its table of who holds what
    public={"Comparison": f"{__package__}.comparison"},
    formerly={"reporting.paper": f"{__package__}.paper"},
)
