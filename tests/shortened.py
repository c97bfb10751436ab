"""Documented studies have two seeds where a test runs them: for a process to import."""

from study_on_disk import two_seeds

from federatedscope_ggeur.extras.studies import study_file

study_file.load_study = two_seeds(study_file.load_study)
