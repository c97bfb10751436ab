"""For a process to import that runs documented studies: two seeds, and workers that are
forks."""

from contextlib import ExitStack

from study_on_disk import forked_workers, two_seeds

from federatedscope_ggeur.extras.studies import study_file

study_file.load_study = two_seeds(study_file.load_study)
#: Kept, so that it goes on for as long as the process.
FORKED = ExitStack()
FORKED.enter_context(forked_workers())
