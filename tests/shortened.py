"""Documented commands do less where a test runs them: for a process to import.

A study has two seeds, and its processes are forks.
"""

from study_on_disk import forked_workers, two_seeds

from federatedscope_ggeur.extras.studies import study_file

study_file.load_study = two_seeds(study_file.load_study)
forked_workers().__enter__()
